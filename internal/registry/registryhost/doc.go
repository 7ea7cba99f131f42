// SPDX-License-Identifier: Apache-2.0

// Package registryhost is the node's local registry: its table, and the hosts.toml files that name it.
//
// The daemon writes the table (Store), a short-lived program answers requests from it (package answer), and only a
// person or Salt makes containerd ask it (Registries). Package localregistry defines the terms and decides the content
// of the table.
//
// Why a person enables it: the admin owns hosts.toml, the daemon may not write to /etc/containerd, and an unused socket
// is one more open port. The port is 334: unassigned, only for root, and below 512, where bindresvport(3) and NFS take
// no ports.
package registryhost

// SPDX-License-Identifier: Apache-2.0

// Package localhost is the node's own host: the table that it answers from, its server, and the hosts.toml files that
// name it.
//
// The daemon writes the table (Store), a short process of its own answers requests from it (Server), and only a person
// or Salt lets containerd ask it (Registries). Package ownhost has the words, and decides what the table says.
//
// The server answers the HEAD of a manifest and has no content to give: containerd fetches none that is on the node.
// What it does not know it refuses so that containerd asks the next host, and never in a way that draws a login. So all
// that a program on the node can learn is which floating tags the node follows, and their digests.
package localhost

// SPDX-License-Identifier: Apache-2.0

// Package node observes the node: the pod manifests, the containers and the images on it.
// An Inventory is one observation. Each pod manifest in it is parsed once, by content. The
// ports in node_ports.go are what the agent needs of the node's runtime, image store and
// directories.
package node

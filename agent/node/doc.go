// SPDX-License-Identifier: Apache-2.0

// Package node observes the node: its pod manifests, containers and images. An Inventory is one
// observation; it parses each pod manifest once, by content. ports.go holds the ports to the
// node's runtime, image store and directories.
package node

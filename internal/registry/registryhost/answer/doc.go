// SPDX-License-Identifier: Apache-2.0

// Package answer answers containerd's requests to the node's local registry, for the program that systemd starts when a
// client connects.
//
// It answers the HEAD of a manifest from the table and has no content: containerd does not fetch content that is on the
// node. It refuses unknown requests so that containerd asks the next host, and never in a way that makes it send a
// login. So other programs on the node can learn only which floating tags the node follows, and their digests.
//
// Any program on the node can connect, and a container's start waits for the answer. So the program has no other code
// of the agent, starts in 2 ms, and imports only the standard library and the table's format. It reads requests without
// net/http, whose parser is the judge in the tests.
//
// Why one process for all clients: with Accept=yes any user who held 512 connections kept containerd out. It closes the
// slowest connection at 512, and exits after a second without a client, or after 3 s.
package answer

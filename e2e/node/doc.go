// SPDX-License-Identifier: Apache-2.0

// Package node starts a real node on this machine for the duration of a test or of the demo: a registry, containerd and
// kubelet, all under one temporary directory.
//
//	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
//	n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{})
//	n.WritePod(node.Pod{Name: "velum", Image: n.Registry.Ref("demo/velum:4.0.0-rev1"), Port: port})
//	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
//	result := n.Agent("run", "--once")
//
// Node.Root is a tree for the agent's --root, with containerd's socket, certs.d and kubelet's manifest directory at
// their usual paths.
//
// Everything ends with the test, however that ends (see package keeper). Pods use the host's network; no CNI network is
// configured. The package needs root, cgroups, and the programs that tools/setup installs and builds.
//
// Methods that take no error result report through the TB that the node was started with, as test helpers do.
package node

// SPDX-License-Identifier: Apache-2.0

// Package host boots a real operating system beside the registry, containerd and kubelet of a test node: a small
// Debian whose process 1 is systemd, with D-Bus, logind and polkit, in which the RPM of this checkout is installed.
//
//	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
//	h := host.New(t, n, host.Systemd252)
//	h.Install(host.Built(t).Package)
//	h.Enable("image-update-agent.service")
//	h.Boot()
//	h.Must("image-update-agent", "check")
//
// What the node has, the host sees at its usual place: containerd's socket, certs.d and kubelet's directory of pod
// manifests; the network is the same. Everything else is the host's own, /etc/salt/grains say, and lives in a layer
// over a root that tools/setup makes once and no host changes.
//
// The host is a program of the node and ends with it, with its mounts and cgroups, whatever way the test ends.
//
// Methods that take no error result report through the TB that the host was made with, as test helpers do.
package host

// SPDX-License-Identifier: Apache-2.0

// Package host boots a real operating system next to the registry, containerd and kubelet of a test node: a small
// Debian with systemd as process 1, D-Bus, logind and polkit, in which a test installs the RPM of this checkout.
//
//	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
//	h := host.New(t, n, host.Systemd252)
//	h.Install(host.Built(t).Package)
//	h.Enable("image-update-agent.service")
//	h.Boot()
//	h.Must("image-update-agent", "check")
//
// The host sees the node's containerd socket, certs.d and directory of pod manifests at their usual places, and shares
// its network. All other files (/etc/salt/grains, for example) belong to the host alone: they are in an overlay over a
// root that tools/setup makes once and that no host changes.
//
// The host is a program of the node: however the test ends, the host ends with the node, and its mounts and cgroups
// with it.
//
// Methods that take no error result report through the TB that the host was made with, as test helpers do.
package host

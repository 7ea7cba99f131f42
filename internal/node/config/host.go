// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"net/netip"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// nodeValue is a value from another program on the node. It overrides the defaults, and every file of the agent
// overrides it.
type nodeValue struct {
	key, place, text string
	asks             string // the text that requests the node's value in any file
}

// nodeValues are kubelet's staticPodPath, imageGCHighThresholdPercent and readOnlyPort, and containerd's config_path. A
// file that is missing, or that its owner could not read either, has no value: it is not the agent's to report.
func nodeValues(p platform.Platform, ask Asks) []nodeValue {
	k := ReadKubelet(p, ask)
	return []nodeValue{
		{key: "podManifests", place: k.places["staticPodPath"], text: k.values["staticPodPath"]},
		{key: "containerd.certsD", place: p.At(p.ContainerdConfig), text: readCertsD(p, false).path},
		{
			key: "disk.highMark", place: k.places["imageGCHighThresholdPercent"], text: k.values["imageGCHighThresholdPercent"],
			asks: "0",
		},
		{key: "kubelet.pods", place: k.places["readOnlyPort"], text: k.readOnlyPods()},
	}
}

// offer sets the node's value, at the priority below the agent's files.
func (w *walker) offer(n nodeValue) {
	f, _ := w.field(n.key)
	if _, err := w.convert(f, n.text); err == nil && n.text != n.asks {
		w.set(n.key, n.place, n.text)
	}
}

// resolve replaces the text that requests the node's value with that value, or with the default.
func (w *walker) resolve(n nodeValue) {
	if w.written(n.key).Value == n.asks {
		f, _ := w.field(n.key)
		w.set(n.key, defaultPlace, f.defaultOn(w.platform))
		w.offer(n)
	}
}

// readOnlyPods returns the URL of kubelet's list of pods on its read-only port, which is off by default, and listens on
// its address: by default on all of the node's.
func (k KubeletConfig) readOnlyPods() string {
	address := k.values["address"]
	switch ip, _ := netip.ParseAddr(address); {
	case address == "", ip == netip.IPv4Unspecified():
		address = "127.0.0.1"
	case ip == netip.IPv6Unspecified():
		address = "::1"
	}
	return "http://" + net.JoinHostPort(address, k.values["readOnlyPort"]) + "/pods"
}

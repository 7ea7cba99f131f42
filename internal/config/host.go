// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"net/netip"

	"github.com/kubic-project/image-update-agent/internal/platform"
)

// nodeValue is what the node itself says about a key. It lies above the defaults and below every file of ours.
type nodeValue struct {
	key, place, text string
	asks             string // the text that stands for the node's, wherever it was written
}

// nodeValues are kubelet's staticPodPath, imageGCHighThresholdPercent and readOnlyPort, and containerd's config_path.
// A file that is not there, or that its owner could not read either, says nothing: it is not ours to complain about.
func nodeValues(p platform.Platform) []nodeValue {
	k := readKubelet(p)
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

// offer sets what the node says, where a file of ours could say it.
func (w *walker) offer(n nodeValue) {
	f, _ := w.field(n.key)
	if _, err := w.convert(f, n.text); err == nil && n.text != n.asks {
		w.set(n.key, n.place, n.text)
	}
}

// resolve puts what the node says, or the default, in the place of the text that asks for it.
func (w *walker) resolve(n nodeValue) {
	if w.written(n.key).Value == n.asks {
		f, _ := w.field(n.key)
		w.set(n.key, defaultPlace, f.defaultOn(w.platform))
		w.offer(n)
	}
}

// readOnlyPods is the URL of kubelet's list of pods on its read-only port, which is off by default, and open on its
// address: by default every one of the node's.
func (k kubelet) readOnlyPods() string {
	address := k.values["address"]
	switch ip, _ := netip.ParseAddr(address); {
	case address == "", ip == netip.IPv4Unspecified():
		address = "127.0.0.1"
	case ip == netip.IPv6Unspecified():
		address = "::1"
	}
	return "http://" + net.JoinHostPort(address, k.values["readOnlyPort"]) + "/pods"
}

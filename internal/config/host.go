// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"net/netip"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/trustedfile"
)

// The files of others that say where things are on this node.
const (
	kubeletFile    = "/var/lib/kubelet/config.yaml"
	containerdFile = "/etc/containerd/config.toml"
)

// nodeValue is what the node itself says about a key. It lies above the defaults and below every file of ours.
type nodeValue struct {
	key, place, text string
	asks             string // the text that stands for the node's, wherever it was written
}

// nodeValues are kubelet's staticPodPath, imageGCHighThresholdPercent and readOnlyPort, and containerd's config_path.
// A file that is not there, or that its owner could not read either, says nothing: it is not ours to complain about.
func nodeValues(root string) []nodeValue {
	k, file := readKubelet(root), root+kubeletFile
	return []nodeValue{
		{key: "podManifests", place: file, text: k.StaticPodPath},
		{key: "containerd.certsD", place: root + containerdFile, text: readCertsD(root, false).path},
		{key: "disk.highMark", place: file, text: k.HighThreshold, asks: "0"},
		{key: "kubelet.pods", place: file, text: k.readOnlyPods()},
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
		w.set(n.key, defaultPlace, f.Tag.Get("default"))
		w.offer(n)
	}
}

// kubelet is its configuration, as far as it is read.
type kubelet struct {
	StaticPodPath string `yaml:"staticPodPath"`
	HighThreshold string `yaml:"imageGCHighThresholdPercent"`
	ReadOnlyPort  string `yaml:"readOnlyPort"`
	Address       string `yaml:"address"`
}

func readKubelet(root string) (k kubelet) {
	if data, err := trustedfile.Read(root+kubeletFile, maxFile); err == nil {
		_ = yaml.Unmarshal(data, &k) // a value of another type says nothing
	}
	k.StaticPodPath = strings.TrimSuffix(k.StaticPodPath, "/")
	return k
}

// StaticPodPath is where kubelet reads pod manifests, with the root before it; empty where its configuration does not
// say.
func StaticPodPath(root string) string {
	if dir := readKubelet(root).StaticPodPath; path(dir) == nil {
		return root + dir
	}
	return ""
}

// readOnlyPods is the URL of kubelet's list of pods on its read-only port, which is off by default, and open on its
// address: by default every one of the node's.
func (k kubelet) readOnlyPods() string {
	switch ip, _ := netip.ParseAddr(k.Address); {
	case k.Address == "", ip == netip.IPv4Unspecified():
		k.Address = "127.0.0.1"
	case ip == netip.IPv6Unspecified():
		k.Address = "::1"
	}
	return "http://" + net.JoinHostPort(k.Address, k.ReadOnlyPort) + "/pods"
}

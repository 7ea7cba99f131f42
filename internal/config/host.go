// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"gopkg.in/yaml.v3"
)

// The files of others that say where things are on this node.
const (
	kubeletFile    = "/var/lib/kubelet/config.yaml"
	containerdFile = "/etc/containerd/config.toml"
	// What containerd 2.2 imports where it is not told otherwise.
	containerdFragments = "/etc/containerd/conf.d/*.toml"
)

// kubeletsHighMark is kubelet's own default of imageGCHighThresholdPercent
// (k8s.io/kubelet/config/v1beta1).
const kubeletsHighMark = 85

// host is the fragment of what the node itself says: kubelet's staticPodPath,
// imageGCHighThresholdPercent and readOnlyPort, and containerd's config_path. It lies above the
// defaults and below every file of ours. A file that is not there, or that its
// owner could not read either, says nothing: it is not ours to complain about.
func (s Sources) host() fragment {
	found := fragment{}
	add := func(key, file string, value func(data []byte) string) {
		data, err := readFile(s.Root + file)
		if err != nil {
			return
		}
		if text := value(data); text != "" {
			found[key] = input{from: origin{place: s.Root + file}, text: text}
		}
	}
	add("podManifests", kubeletFile, staticPodPath)
	add(highMark, kubeletFile, highThreshold)
	add(kubeletPods, kubeletFile, readOnlyPods)
	add("containerd.certsD", containerdFile, configPath)
	return found
}

// StaticPodPath is where kubelet reads pod manifests, with the root before it; empty
// where its configuration does not say.
func StaticPodPath(root string) string {
	data, err := readFile(root + kubeletFile)
	if err != nil {
		return ""
	}
	if path := staticPodPath(data); path != "" {
		return root + path
	}
	return ""
}

func staticPodPath(data []byte) string {
	var kubelet struct {
		StaticPodPath string `yaml:"staticPodPath"`
	}
	if err := yaml.Unmarshal(data, &kubelet); err != nil {
		return ""
	}
	return absolute(strings.TrimSuffix(kubelet.StaticPodPath, "/"))
}

// absolute drops what is no absolute path.
func absolute(path string) string {
	if !filepath.IsAbs(path) {
		return ""
	}
	return path
}

const highMark = "disk.highMark"

func highThreshold(data []byte) string {
	var kubelet struct {
		Percent int `yaml:"imageGCHighThresholdPercent"`
	}
	if err := yaml.Unmarshal(data, &kubelet); err != nil || kubelet.Percent < 1 || kubelet.Percent > 100 {
		return ""
	}
	return strconv.Itoa(kubelet.Percent)
}

const kubeletPods = "kubelet.pods"

// readOnlyPods is the URL of kubelet's list of pods on its read-only port, which
// is off by default, and open on its address: by default every one of the node's.
func readOnlyPods(data []byte) string {
	var kubelet struct {
		Port    int    `yaml:"readOnlyPort"`
		Address string `yaml:"address"`
	}
	if err := yaml.Unmarshal(data, &kubelet); err != nil {
		return ""
	}
	address := "127.0.0.1"
	switch ip, err := netip.ParseAddr(kubelet.Address); {
	case kubelet.Address == "":
	case err != nil:
		return ""
	case !ip.IsUnspecified():
		address = kubelet.Address
	case ip.Is6():
		address = "::1"
	}
	found := "http://" + net.JoinHostPort(address, strconv.Itoa(kubelet.Port)) + "/pods"
	if podList(found) != nil { // the port is 0, say
		return ""
	}
	return found
}

// resolve puts in the place of the text that asks for what the node says what it
// says, or the fallback where it says nothing.
func resolve(merged, host fragment, key, asks, fallback string) {
	if merged[key].text != asks {
		return
	}
	meant, there := host[key]
	if !there {
		meant = input{from: origin{place: "default"}, text: fallback}
	}
	merged[key] = meant
}

// criPlugin is the part of a containerd plugin that has the config_path.
type criPlugin struct {
	Registry struct {
		ConfigPath string `toml:"config_path"`
	} `toml:"registry"`
}

// configPath reads containerd's own key, which moved with version 3 of its
// configuration (containerd 2.x). It may be a list with colons.
func configPath(data []byte) string {
	var containerd struct {
		Plugins struct {
			V3 criPlugin `toml:"io.containerd.cri.v1.images"`
			V2 criPlugin `toml:"io.containerd.grpc.v1.cri"`
		} `toml:"plugins"`
	}
	if err := toml.Unmarshal(data, &containerd); err != nil {
		return ""
	}
	if path := containerd.Plugins.V3.Registry.ConfigPath; path != "" {
		return absolute(path)
	}
	return absolute(containerd.Plugins.V2.Registry.ConfigPath)
}

// Unpacks reads how many layers of an image containerd unpacks at once in its own
// pulls (max_concurrent_unpacks, of 2.2 and later), from its configuration below
// root and the fragments that 2.2 imports by default; 0: they do not say.
func Unpacks(root string) int {
	files := []string{root + containerdFile}
	if more, err := filepath.Glob(root + containerdFragments); err == nil {
		files = append(files, more...)
	}
	unpacks := 0
	for _, file := range files {
		data, err := readFile(file)
		if err != nil {
			continue
		}
		var containerd struct {
			Plugins struct {
				Transfer struct {
					Unpacks int `toml:"max_concurrent_unpacks"`
				} `toml:"io.containerd.transfer.v1.local"`
			} `toml:"plugins"`
		}
		if err := toml.Unmarshal(data, &containerd); err == nil && containerd.Plugins.Transfer.Unpacks > 0 {
			unpacks = containerd.Plugins.Transfer.Unpacks
		}
	}
	return unpacks
}

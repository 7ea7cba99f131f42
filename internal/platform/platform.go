// SPDX-License-Identifier: Apache-2.0

// Package platform has the paths that a distribution of Kubernetes decides: where kubelet, containerd and their logins
// are on a node. A distribution is one value in All. Settings override what they have a key for.
package platform

import (
	"os"
	"path/filepath"
	"strings"
)

// Platform are the paths of one distribution, absolute and without Root.
type Platform struct {
	Name string
	Root string // before every path; empty: the host's own
	// mark is a path that a node of this platform has, and no other node; empty: what has no mark is of this platform.
	mark string

	// Templates are the pod manifests that packages ship.
	Templates string
	// PodManifests is where kubelet reads pod manifests, where its configuration does not say.
	PodManifests string
	// KubeletUnit is the unit that starts kubelet, KubeletConfig its configuration where the unit names none.
	KubeletUnit, KubeletConfig string
	// ContainerdSocket is also CRI's. ContainerdConfig is its configuration, and CertsD the directory of hosts.toml files
	// where that does not say.
	ContainerdSocket, ContainerdConfig, CertsD string
	// Kubeconfigs lead to the API servers; the first that can be used is used.
	Kubeconfigs []string
	// Logins are the files in which kubelet looks for logins of registries.
	Logins []string
}

// All lists the platforms. The first whose mark a node has is the node's; the last has no mark.
func All() []Platform {
	kubeadm := Platform{
		Name: "kubeadm",
		// Packages may bring templates to any node.
		Templates:    "/usr/share/caasp-container-manifests/manifests",
		PodManifests: "/etc/kubernetes/manifests",
		KubeletUnit:  "kubelet.service", KubeletConfig: "/var/lib/kubelet/config.yaml",
		ContainerdSocket: "/run/containerd/containerd.sock",
		ContainerdConfig: "/etc/containerd/config.toml", CertsD: "/etc/containerd/certs.d",
		// RKE2's stands here for nodes whose other paths are set by hand.
		Kubeconfigs: []string{"/etc/kubernetes/admin.conf", "/etc/rancher/rke2/rke2.yaml", "/etc/kubernetes/kubelet.conf"},
		// kubelet runs in /, and has no home as a service.
		Logins: []string{
			"/var/lib/kubelet/config.json", "/.docker/config.json", "/var/lib/kubelet/.dockercfg", "/.dockercfg",
		},
	}
	caasp := kubeadm
	caasp.Name, caasp.mark = "caasp", "/usr/share/caasp-container-manifests"
	return []Platform{caasp, kubeadm}
}

// Detect returns the platform of the node whose files are below root.
func Detect(root string) Platform {
	root = strings.TrimSuffix(filepath.Clean("/"+root), "/")
	all := All()
	found := all[len(all)-1]
	for _, p := range all {
		if _, err := os.Stat(root + p.mark); p.mark != "" && err == nil {
			found = p
			break
		}
	}
	found.Root = root
	return found
}

// At is a path below the root.
func (p Platform) At(path string) string { return p.Root + path }

// Path is a path of a platform, or a list of them, with its name.
type Path struct{ Name, Value string }

// Paths lists the paths that no setting overrides.
func (p Platform) Paths() []Path {
	return []Path{
		{"kubeletUnit", p.KubeletUnit},
		{"kubeletConfig", p.KubeletConfig},
		{"containerdConfig", p.ContainerdConfig},
		{"kubeconfigs", strings.Join(p.Kubeconfigs, " ")},
		{"logins", strings.Join(p.Logins, " ")},
	}
}

// Sockets are where distributions of Kubernetes have the socket of their containerd, those without a Platform included.
func Sockets() []string {
	sockets := []string{
		"/run/k3s/containerd/containerd.sock", // k3s and RKE2
		"/run/k0s/containerd.sock",
		"/var/snap/microk8s/common/run/containerd.sock",
	}
	for _, p := range All() {
		sockets = append(sockets, p.ContainerdSocket)
	}
	return sockets
}

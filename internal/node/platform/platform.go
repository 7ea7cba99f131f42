// SPDX-License-Identifier: Apache-2.0

// Package platform has the paths that a Kubernetes distribution determines: of kubelet, containerd and their logins on
// a node. A distribution is one value in All. Settings override the paths that have a key.
package platform

import (
	"path/filepath"
	"strings"
)

// Platform has the paths of one distribution, absolute and without Root.
type Platform struct {
	Name string
	Root string // prefix of every path; empty: the host's root

	// Programs are the possible paths of its program. It is installed if one of them, or one of Units, exists.
	Programs []string
	// Units are the units that may start kubelet; KubeletUnit is the node's.
	Units       []string
	KubeletUnit string
	// Data is its data directory, below which other paths lie: it has been set up if that exists.
	Data string
	// ServerMark is a path that exists only on a server; agents use the last one of Units. Empty if there is no
	// difference.
	ServerMark string

	// Templates is the directory of the pod manifests that packages ship.
	Templates string
	// PodManifests is kubelet's directory of pod manifests if its configuration names none.
	PodManifests string
	// Owned are the files of PodManifests that the distribution rewrites at each of its starts.
	Owned []string
	// KubeletConfig is kubelet's configuration if the unit names none. KubeletDropIns is the directory of drop-ins of a
	// kubelet that the distribution starts, and Config then has its flags; empty if the unit starts kubelet.
	KubeletConfig, KubeletDropIns, Config string
	// ContainerdSocket also serves CRI. ContainerdConfig is containerd's configuration, and CertsD the directory of
	// hosts.toml files if that names none.
	ContainerdSocket, ContainerdConfig, CertsD string
	// Registries is the file from which the distribution writes the hosts.toml files of CertsD at each start; empty if
	// it writes none.
	Registries string
	// Kubeconfigs are used for the API servers; the first usable one counts. The last one is kubelet's own.
	Kubeconfigs []string
	// Logins are the files in which kubelet looks for registry logins.
	Logins []string
}

// All lists the platforms. If several match a node, the first counts; the last is for a node without any sign.
func All() []Platform {
	kubeadm := Platform{
		Name:     "kubeadm",
		Programs: []string{"/usr/bin/kubelet", "/usr/local/bin/kubelet"},
		Units:    []string{"kubelet.service"},
		Data:     "/var/lib/kubelet/config.yaml",
		// Packages may add templates to any node.
		Templates:        "/usr/share/caasp-container-manifests/manifests",
		PodManifests:     "/etc/kubernetes/manifests",
		KubeletConfig:    "/var/lib/kubelet/config.yaml",
		ContainerdSocket: "/run/containerd/containerd.sock",
		ContainerdConfig: "/etc/containerd/config.toml", CertsD: "/etc/containerd/certs.d",
		Kubeconfigs: []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/kubelet.conf"},
		// kubelet runs in /, and has no home directory as a service.
		Logins: []string{
			"/var/lib/kubelet/config.json", "/.docker/config.json", "/var/lib/kubelet/.dockercfg", "/.dockercfg",
		},
	}
	caasp := kubeadm
	caasp.Name, caasp.Data = "caasp", "/usr/share/caasp-container-manifests"

	rke2, k3s := rancher("rke2", kubeadm), rancher("k3s", kubeadm)
	rke2.Programs = append(rke2.Programs, "/opt/rke2/bin/rke2")
	rke2.Units = []string{"rke2-server.service", "rke2-agent.service"}
	// pkg/executor/staticpod and pkg/podtemplate of rke2: each component is a file with that name. k3s writes none.
	for _, component := range []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "cloud-controller-manager",
	} {
		rke2.Owned = append(rke2.Owned, component+".yaml")
	}
	return []Platform{caasp, rke2, k3s, kubeadm}
}

// rancher returns the common paths of k3s and RKE2, which is based on it (pkg/agent/config and pkg/daemons/agent of
// k3s).
func rancher(name string, kubeadm Platform) Platform {
	data, etc := "/var/lib/rancher/"+name, "/etc/rancher/"+name
	return Platform{
		Name:       name,
		Programs:   []string{"/usr/local/bin/" + name, "/usr/bin/" + name},
		Units:      []string{name + ".service", name + "-agent.service"},
		Data:       data,
		ServerMark: data + "/server/token",

		Templates:      kubeadm.Templates,
		PodManifests:   data + "/agent/pod-manifests",
		Config:         etc + "/config.yaml",
		KubeletConfig:  data + "/agent/etc/kubelet.conf.d/00-" + name + "-defaults.conf",
		KubeletDropIns: data + "/agent/etc/kubelet.conf.d",

		ContainerdSocket: "/run/k3s/containerd/containerd.sock",
		ContainerdConfig: data + "/agent/etc/containerd/config.toml", CertsD: data + "/agent/etc/containerd/certs.d",
		Registries:  etc + "/registries.yaml",
		Kubeconfigs: []string{etc + "/" + name + ".yaml", data + "/agent/kubelet.kubeconfig"},
		Logins:      kubeadm.Logins,
	}
}

// Moved returns the platform with another data directory, which its configuration may name.
func (p Platform) Moved(data string) Platform {
	move := func(path *string) {
		if rest, is := strings.CutPrefix(*path, p.Data+"/"); is {
			*path = filepath.Join("/", data, rest)
		}
	}
	for _, path := range []*string{
		&p.ServerMark, &p.PodManifests, &p.KubeletConfig, &p.KubeletDropIns, &p.ContainerdConfig, &p.CertsD,
	} {
		move(path)
	}
	kubeconfigs := append([]string{}, p.Kubeconfigs...)
	for n := range kubeconfigs {
		move(&kubeconfigs[n])
	}
	p.Kubeconfigs, p.Data = kubeconfigs, filepath.Join("/", data)
	p.KubeletUnit = p.unit()
	return p
}

// Command is what a service of the node starts, as its service manager says.
type Command struct {
	// Running are the arguments of its main process, with the program; empty if it does not run.
	Running []string
	// Words are those of the unit, with variables replaced, and Environment are the variables. Err is why they are not
	// known.
	Words       []string
	Environment map[string]string
	Err         error
}

// ContainerdUnit is the unit that starts containerd: a distribution that starts kubelet starts containerd, too.
func (p Platform) ContainerdUnit() string {
	if p.KubeletDropIns != "" {
		return p.KubeletUnit
	}
	return "containerd.service"
}

// At returns a path below the root.
func (p Platform) At(path string) string { return p.Root + path }

// Path is a path of a platform, or a list of them, with its name.
type Path struct{ Name, Value string }

// Paths lists the paths that no setting overrides.
func (p Platform) Paths() []Path {
	paths := []Path{
		{"kubeletUnit", p.KubeletUnit},
		{"kubeletConfig", p.KubeletConfig},
		{"containerdConfig", p.ContainerdConfig},
		{"registries", p.Registries},
		{"kubeconfigs", strings.Join(p.Kubeconfigs, " ")},
		{"logins", strings.Join(p.Logins, " ")},
	}
	if p.Registries == "" {
		paths = append(paths[:3], paths[4:]...)
	}
	return paths
}

// Sockets returns the containerd sockets of Kubernetes distributions, including those without a Platform.
func Sockets() []string {
	sockets := []string{"/run/k0s/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock"}
	for _, p := range All() {
		sockets = append(sockets, p.ContainerdSocket)
	}
	return sockets
}

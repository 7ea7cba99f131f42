// SPDX-License-Identifier: Apache-2.0

// Package platform has the paths that a Kubernetes distribution determines: of kubelet, containerd and their logins on
// a node. A distribution is one value in All. Settings override the paths that have a key.
package platform

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	// OwnImages are the repositories, without their registry, of images that the distribution builds for Owned.
	OwnImages []string
	// KubeletConfig is kubelet's configuration if the unit names none. KubeletDropIns is the directory of drop-ins of a
	// kubelet that the distribution starts, and Config then has its flags; empty if the unit starts kubelet.
	KubeletConfig, KubeletDropIns, Config string
	// ConfigVariable and DataVariable are the unit's variables that name another Config and Data; empty if there are
	// none.
	ConfigVariable, DataVariable string
	// ContainerdSocket also serves CRI. ContainerdConfig is containerd's configuration, and CertsD the directory of
	// hosts.toml files if that names none.
	ContainerdSocket, ContainerdConfig, CertsD string
	// ContainerdLog is the file with containerd's log; empty: its unit's journal.
	ContainerdLog string
	// ContainerdVariables begin the names of its unit's variables that are for containerd alone; empty if there are none.
	ContainerdVariables string
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
	rke2.OwnImages = []string{"rancher/hardened-kubernetes", "rancher/hardened-etcd", "rancher/rke2-cloud-provider"}
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
		ConfigVariable: strings.ToUpper(name) + "_CONFIG_FILE", DataVariable: strings.ToUpper(name) + "_DATA_DIR",

		ContainerdSocket: "/run/k3s/containerd/containerd.sock",
		ContainerdConfig: data + "/agent/etc/containerd/config.toml", CertsD: data + "/agent/etc/containerd/certs.d",
		ContainerdLog:       data + "/agent/containerd/containerd.log",
		ContainerdVariables: "CONTAINERD_",

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
		&p.ContainerdLog,
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
	// Words are the unit's command line, with variables replaced, and Environment are the variables. Err is why they
	// are unknown.
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

// EditedContainerdConfig is the file in which a person configures containerd: a distribution that starts it writes its
// configuration from a template at each start (pkg/agent/templates of k3s). version is containerd's.
func (p Platform) EditedContainerdConfig(version string) string {
	dir := filepath.Dir(p.ContainerdConfig)
	switch {
	case p.KubeletDropIns == "":
		return p.ContainerdConfig
	case strings.HasPrefix(strings.TrimPrefix(version, "v"), "1."):
		return filepath.Join(dir, "config.toml.tmpl")
	default:
		return filepath.Join(dir, "config-v3.toml.tmpl")
	}
}

// RegistriesText is the text for Registries that makes the distribution use endpoints, in order, for a registry. It
// puts the registry itself after all of them.
func (p Platform) RegistriesText(registry string, endpoints []string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "mirrors:\n  %s:\n    endpoint:\n", registry)
	for _, e := range endpoints {
		fmt.Fprintf(&text, "    - %q\n", e)
	}
	return text.String()
}

// OwnerOf returns the name of the distribution that builds an image, also in a mirror, for pod manifests that it
// writes; empty if there is none.
func OwnerOf(reference string) string {
	for _, p := range All() {
		if slices.ContainsFunc(p.OwnImages, func(repository string) bool {
			_, after, is := strings.Cut("/"+reference, "/"+repository)
			return is && after != "" && strings.Contains(":@", after[:1])
		}) {
			return p.Name
		}
	}
	return ""
}

// At returns a path below the root.
func (p Platform) At(path string) string { return p.Root + path }

// Path is a path of a platform, or a list of them, with its name.
type Path struct{ Name, Value string }

// Paths lists the paths that no setting overrides.
func (p Platform) Paths() []Path {
	return slices.DeleteFunc([]Path{
		{"kubeletUnit", p.KubeletUnit},
		{"kubeletConfig", p.KubeletConfig},
		{"containerdConfig", p.ContainerdConfig},
		{"registries", p.Registries},
		{"kubeconfigs", strings.Join(p.Kubeconfigs, " ")},
		{"logins", strings.Join(p.Logins, " ")},
	}, func(p Path) bool { return p.Value == "" })
}

// Sockets returns the containerd sockets of Kubernetes distributions, including those without a Platform.
func Sockets() []string {
	sockets := []string{"/run/k0s/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock"}
	for _, p := range All() {
		sockets = append(sockets, p.ContainerdSocket)
	}
	return sockets
}

// unitDirs are the directories of units; the first one with the unit counts.
var unitDirs = []string{
	"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
	"/lib/systemd/system",
}

// enabledUnits has the links of the units that start at boot.
const enabledUnits = "/etc/systemd/system/multi-user.target.wants/"

// Seen is the part of a platform that a node has.
type Seen struct {
	Platform Platform
	Program  string // its program or unit; empty if it is not installed
	Data     string // empty if it has not been set up
	Enabled  bool   // starts at boot
}

// weight orders the results: the heaviest is the node's platform.
func (s Seen) weight() int {
	switch {
	case s.Program != "" && s.Data != "" && s.Enabled:
		return 4
	case s.Program != "" && s.Data != "":
		return 3
	case s.Program != "":
		return 2 // not set up yet
	case s.Data != "":
		return 1 // removed, or its program is in another place
	}
	return 0
}

// IsWhole reports whether the platform is installed and has been set up.
func (s Seen) IsWhole() bool { return s.weight() > 2 }

// Look returns what a node with files below root has of each platform, in the order of All.
func Look(root string) []Seen {
	var all []Seen
	for _, p := range All() {
		p.Root = strings.TrimSuffix(filepath.Clean("/"+root), "/")
		p.KubeletUnit = p.unit()
		s := Seen{Platform: p, Program: p.first(p.Programs), Data: p.first([]string{p.Data})}
		if s.Program == "" {
			s.Program = p.first(p.unitFiles())
		}
		if s.Data == "" && p.Data == filepath.Dir(p.Templates) { // without templates this is the kubelet of kubeadm
			s.Program = ""
		}
		s.Enabled = p.has(enabledUnits + p.KubeletUnit)
		all = append(all, s)
	}
	return all
}

// Detect returns the platform of the node whose files are below root.
func Detect(root string) Platform {
	all := Look(root)
	found := slices.MaxFunc(all, func(a, b Seen) int { return a.weight() - b.weight() }) // the first of equal ones
	if found.weight() == 0 {
		found = all[len(all)-1]
	}
	return found.Platform
}

// Named returns the platform with that name for the node with files below root, whatever the node has; for an empty
// name the same as Detect.
func Named(root, name string) Platform {
	for _, s := range Look(root) {
		if s.Platform.Name == name {
			return s.Platform
		}
	}
	return Detect(root)
}

// Names returns the names of all platforms, sorted.
func Names() (names []string) {
	for _, p := range All() {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// unit returns the unit that starts kubelet: the one that starts at boot, else the one for the node's role in the
// cluster, else the one that exists.
func (p Platform) unit() string {
	server, agent := p.Units[0], p.Units[len(p.Units)-1]
	for _, unit := range p.Units {
		if p.has(enabledUnits + unit) {
			return unit
		}
	}
	switch {
	case p.ServerMark == "", p.has(p.ServerMark):
		return server
	case p.has(p.Data + "/agent"), p.unitFile(server) == "" && p.unitFile(agent) != "":
		return agent
	}
	return server
}

func (p Platform) unitFiles() (files []string) {
	for _, unit := range p.Units {
		if file := p.unitFile(unit); file != "" {
			files = append(files, file)
		}
	}
	return files
}

func (p Platform) unitFile(unit string) string {
	var files []string
	for _, dir := range unitDirs {
		files = append(files, dir+"/"+unit)
	}
	return p.first(files)
}

// first returns the first path that exists; empty if none does.
func (p Platform) first(paths []string) string {
	if at := slices.IndexFunc(paths, p.has); at >= 0 {
		return paths[at]
	}
	return ""
}

func (p Platform) has(path string) bool {
	_, err := os.Lstat(p.At(path))
	return err == nil
}

// Version returns the version of the distribution from its files; empty if unknown.
func (p Platform) Version() string {
	// pkg/bootstrap of rke2: bin is a link to data/VERSION-HASH/bin.
	to, err := os.Readlink(p.At(p.Data + "/bin"))
	if err != nil {
		return ""
	}
	name := filepath.Base(filepath.Dir(to))
	if at := strings.LastIndexByte(name, '-'); at > 0 && strings.HasPrefix(name, "v") {
		return name[:at]
	}
	return ""
}

// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

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

// Names returns the names of all platforms.
func Names() (names []string) {
	for _, p := range All() {
		names = append(names, p.Name)
	}
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

// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/argv"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// The keys read from the configuration of k3s and RKE2, which are also flags of their programs. The flag config names
// another file than the platform's.
const (
	keyDataDir    = "data-dir"
	keyKubeletArg = "kubelet-arg"
	flagConfig    = "config"
)

// shortFlags map short flags to their long names.
var shortFlags = map[string]string{"d": keyDataDir, "c": flagConfig}

// distribution is the configuration of k3s or RKE2 (pkg/configfilearg of k3s): its file, overridden by the drop-ins,
// then by its variables and flags. A list of flags replaces one in a file.
type distribution struct {
	values   map[string][]string // by key
	place    string              // the file with the flags of kubelet
	problems []error
}

// readDistribution reads the configuration of a platform that starts kubelet itself; other platforms have none. The
// unit has its flags: its process overwrites them, since they may be secret (pkg/cli/server of k3s).
func readDistribution(p platform.Platform, ask Asks) distribution {
	d := distribution{values: map[string][]string{}}
	if p.Config == "" {
		return d
	}
	is := ask.command(p.KubeletUnit)
	if is.Err != nil {
		d.problem(fmt.Errorf("flags of %s are not known: %w", p.KubeletUnit, is.Err))
	}
	flags := distributionFlags(is.Words)
	file := is.Environment[strings.ToUpper(p.Name)+"_CONFIG_FILE"]
	d.files(p, cmp.Or(file, flags.Last(flagConfig)))
	if dir := is.Environment[strings.ToUpper(p.Name)+"_DATA_DIR"]; dir != "" {
		d.values[keyDataDir] = []string{dir}
	}
	for _, name := range []string{keyDataDir, keyKubeletArg} {
		if values := flags[name]; len(values) > 0 {
			d.values[name], d.place = values, p.KubeletUnit
		}
	}
	return d
}

// distributionFlags returns the flags of a command that are read, by their long names.
func distributionFlags(words []string) argv.Flags {
	flags, _ := argv.Parse(words, []string{keyDataDir, keyKubeletArg, flagConfig, "d", "c"})
	for short, long := range shortFlags {
		flags[long] = append(flags[long], flags[short]...)
	}
	return flags
}

// files reads the configuration and its drop-ins (dotDFiles of k3s). named is the file from a flag or variable; empty:
// the platform's, which need not exist.
func (d *distribution) files(p platform.Platform, named string) {
	file := p.At(cmp.Or(named, p.Config))
	if named != "" && path(named) != nil {
		d.problem(fmt.Errorf("%s: config: %q: want an absolute path", p.KubeletUnit, outside.Line(named, 128)))
		return
	}
	d.file(file, named != "")
	entries, err := os.ReadDir(file + ".d")
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if len(entries) > maxDropIns {
		entries, err = nil, fmt.Errorf("%s.d: more than %d files", file, maxDropIns)
	}
	d.problem(err)
	for _, entry := range entries {
		ending := strings.ToLower(filepath.Ext(entry.Name()))
		if !entry.IsDir() && (ending == ".yaml" || ending == ".yml") {
			d.file(filepath.Join(file+".d", entry.Name()), true)
		}
	}
}

func (d *distribution) problem(err error) {
	if err != nil {
		d.problems = append(d.problems, outside.Error(err))
	}
}

func (d *distribution) file(file string, mustBe bool) {
	data, err := nodefile.Read(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) && !mustBe {
		return
	}
	var keys map[string]*yaml.Node
	if err == nil {
		keys, err = kubeletKeysOf(data) // they are also one mapping, in which the last value of a key counts
	}
	if err != nil {
		d.problem(fmt.Errorf("%s: %w", file, err))
		return
	}
	for _, key := range []string{keyDataDir, keyKubeletArg} {
		for _, more := range []string{"", "+"} {
			node, is := keys[key+more]
			if !is {
				continue
			}
			if more == "" {
				d.values[key] = nil
			}
			d.values[key] = append(d.values[key], scalarsOf(node)...)
			d.place = file
		}
	}
}

// scalarsOf returns the texts of a list, or a single text.
func scalarsOf(node *yaml.Node) (texts []string) {
	for _, item := range append([]*yaml.Node{node}, node.Content...) {
		if item.Alias != nil {
			item = item.Alias
		}
		if item.Kind == yaml.ScalarNode && item.ShortTag() != "!!null" {
			texts = append(texts, item.Value)
		}
	}
	return texts
}

// located returns the platform with the data directory from its configuration.
func (d distribution) located(p platform.Platform) platform.Platform {
	if dirs := d.values[keyDataDir]; len(dirs) > 0 && path(dirs[len(dirs)-1]) == nil {
		return p.Moved(dirs[len(dirs)-1])
	}
	return p
}

// kubelet returns the kubelet of a distribution that starts it: with drop-ins that it writes, and flags from its
// configuration.
func (d distribution) kubelet(p platform.Platform) KubeletConfig {
	k := KubeletConfig{values: map[string]string{}, places: map[string]string{}, Problems: d.problems}
	if _, err := nodefile.Read(p.At(p.KubeletConfig), maxFile); !errors.Is(err, fs.ErrNotExist) { // exists since 1.32
		k.dropIns(p.At(p.KubeletDropIns))
	}
	delete(k.values, "readOnlyPort") // disabled by a flag
	for _, arg := range d.values[keyKubeletArg] {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name == flagGates {
			k.gates(value, cmp.Or(d.place, p.At(p.Config)))
		}
		for key, flag := range kubeletKeys {
			if name == flag {
				k.values[key], k.places[key] = value, cmp.Or(d.place, p.At(p.Config))
			}
		}
	}
	return k.normalized()
}

// findPlatform returns the platform with that name, or the node's, with the directories from its configuration.
func findPlatform(root, name string, ask Asks) platform.Platform {
	p := platform.Named(root, name)
	return readDistribution(p, ask).located(p)
}

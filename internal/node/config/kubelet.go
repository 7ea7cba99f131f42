// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/argv"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// kubeletKeys are the keys that are read from kubelet's configuration, and the flags that override them
// (k8s.io/kubernetes v1.34.4, cmd/kubelet/app/options).
var kubeletKeys = map[string]string{
	"staticPodPath":               "pod-manifest-path",
	"imageGCHighThresholdPercent": "image-gc-high-threshold",
	"readOnlyPort":                "read-only-port",
	"address":                     "address",
}

// maxKubeletFiles limits the files of kubelet's --config-dir.
const maxKubeletFiles = 256

// KubeletConfig is the part of the configuration that is read: the file, overridden by the drop-ins, then by the flags.
type KubeletConfig struct {
	values map[string]string // by key
	places map[string]string // the place of each value
	unreadable
}

// unreadable are the unreadable parts of a configuration: the values may differ then.
type unreadable struct{ Problems []error }

func (u *unreadable) problem(err error) {
	if err != nil {
		u.Problems = append(u.Problems, outside.Error(err))
	}
}

// read reads the keys of a file, kubelet's or a distribution's: one mapping, in which the last value of a key counts.
func (u *unreadable) read(file string, mustBe bool) map[string]*yaml.Node {
	data, err := nodefile.Read(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) && !mustBe {
		return nil
	}
	var keys map[string]*yaml.Node
	if err == nil {
		keys, err = keysOf(data)
	}
	if err != nil {
		u.problem(fmt.Errorf("%s: %w", file, err))
	}
	return keys
}

// Asks returns what a unit of the node starts.
type Asks func(unit string) platform.Command

// command asks; without systemd, nothing else on the node says which flags kubelet has.
func (ask Asks) command(unit string) platform.Command {
	if ask == nil {
		return platform.Command{Err: errors.New("systemd was not asked")}
	}
	return ask(unit)
}

// ReadKubelet reads the configuration of a node's kubelet.
func ReadKubelet(p platform.Platform, ask Asks) KubeletConfig {
	if p.KubeletDropIns != "" {
		return readDistribution(p, ask).kubelet(p)
	}
	k := KubeletConfig{values: map[string]string{}, places: map[string]string{}}
	flags, err := kubeletFlags(ask.command(p.KubeletUnit))
	if err != nil {
		k.problem(fmt.Errorf("flags of %s are not known: %w", p.KubeletUnit, err))
	}
	file := flags.Last("config")
	switch {
	case file != "":
		k.merge(filepath.Join(p.Root, "/", file), true)
	case err != nil: // kubeadm's, which the packages' unit names
		file = p.KubeletConfig
		k.merge(p.At(file), false)
	default: // without a file kubelet has its flags' defaults, which differ for this one
		k.values["readOnlyPort"], k.places["readOnlyPort"] = "10255", p.KubeletUnit
	}
	if dir := k.values["staticPodPath"]; dir != "" && !filepath.IsAbs(dir) {
		k.values["staticPodPath"] = filepath.Join("/", filepath.Dir(file), dir)
	}
	if dir := flags.Last("config-dir"); dir != "" {
		k.dropIns(filepath.Join(p.Root, "/", dir))
	}
	k.gates(flags.Last(flagGates), p.KubeletUnit)
	flags["address"] = slices.DeleteFunc(flags["address"], func(v string) bool { return v == "" }) // it counts as unset
	for key, flag := range kubeletKeys {
		if len(flags[flag]) > 0 {
			k.values[key], k.places[key] = flags.Last(flag), p.KubeletUnit
		}
	}
	return k.normalized()
}

// kubeletFlags returns the flags of the running kubelet; before its start those of its unit.
func kubeletFlags(c platform.Command) (argv.Flags, error) {
	words := c.Running
	if !isKubelet(words) { // a script may start it
		words = c.Words
	}
	switch {
	case isKubelet(words):
		flags, _ := argv.Parse(argv.Dashed(words[1:]), nil)
		return flags, nil
	case c.Err != nil:
		return argv.Flags{}, c.Err
	case len(words) == 0:
		return argv.Flags{}, errors.New("the unit starts no program")
	}
	return argv.Flags{}, fmt.Errorf("%s starts kubelet", outside.Line(words[0], 128))
}

func isKubelet(words []string) bool { return len(words) > 0 && filepath.Base(words[0]) == "kubelet" }

// normalized returns the values as kubelet interprets them.
func (k KubeletConfig) normalized() KubeletConfig {
	if dir := k.values["staticPodPath"]; dir != "" {
		k.values["staticPodPath"] = filepath.Join("/", dir) // a service starts in "/"
	}
	for _, key := range []string{"imageGCHighThresholdPercent", "readOnlyPort"} {
		if n, err := strconv.ParseInt(k.values[key], 0, 32); err == nil {
			k.values[key] = strconv.FormatInt(n, 10)
		}
	}
	return k
}

// merge merges a file into the values, as a JSON merge patch: null removes a value.
func (k *KubeletConfig) merge(file string, isNamed bool) {
	keys := k.read(file, isNamed)
	k.mergeGate(keys["featureGates"], file)
	for key := range kubeletKeys {
		value, is := keys[key]
		switch {
		case !is:
		case value.ShortTag() == "!!null":
			delete(k.values, key)
			delete(k.places, key)
		case value.Kind != yaml.ScalarNode:
			k.problem(fmt.Errorf("%s: line %d: %s: not a text or a number", file, value.Line, key))
		default:
			k.values[key], k.places[key] = value.Value, file
		}
	}
}

// eventedPLEG is the feature gate with which kubelet hears of an end of a container at once.
const (
	eventedPLEG = "EventedPLEG"
	flagGates   = "feature-gates"
)

// mergeGate merges the feature gates of a file, of which one is read.
func (k *KubeletConfig) mergeGate(gates *yaml.Node, file string) {
	switch {
	case gates == nil:
	case gates.ShortTag() == "!!null":
		delete(k.values, eventedPLEG)
	default:
		for n := 0; n+1 < len(gates.Content); n += 2 {
			if gates.Content[n].Value == eventedPLEG {
				k.values[eventedPLEG], k.places[eventedPLEG] = gates.Content[n+1].Value, file
			}
		}
	}
}

// gates reads a flag with feature gates, which override single gates of the files.
func (k *KubeletConfig) gates(flag, place string) {
	for gate := range strings.SplitSeq(flag, ",") {
		if name, value, _ := strings.Cut(strings.TrimSpace(gate), "="); name == eventedPLEG {
			k.values[eventedPLEG], k.places[eventedPLEG] = value, place
		}
	}
}

// EventedPLEG returns where kubelet's feature gate EventedPLEG is on; empty if it is off, as by default.
func (k KubeletConfig) EventedPLEG() string {
	if on, err := strconv.ParseBool(k.values[eventedPLEG]); err != nil || !on {
		return ""
	}
	return k.places[eventedPLEG]
}

func keysOf(data []byte) (map[string]*yaml.Node, error) {
	var document yaml.Node
	plain := plainJSON(data)
	if err := yaml.Unmarshal(plain, &document); err != nil {
		return nil, yamledit.SyntaxError(plain, err)
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, errors.New("not a mapping")
	}
	keys := map[string]*yaml.Node{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		value := top.Content[i+1]
		if value.Alias != nil {
			value = value.Alias
		}
		keys[top.Content[i].Value] = value
	}
	return keys, nil
}

// plainJSON converts JSON to a form without escapes that YAML does not support; other text is unchanged.
func plainJSON(data []byte) []byte {
	var object map[string]any
	if json.Unmarshal(data, &object) != nil {
		return data
	}
	plain, err := json.Marshal(object)
	if err != nil {
		return data
	}
	return plain
}

// dropIns merges the *.conf files of kubelet's --config-dir and of its subdirectories, in lexical order
// (cmd/kubelet/app/server.go, mergeKubeletConfigurations).
func (k *KubeletConfig) dropIns(dir string) {
	seen := 0
	k.problem(filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".conf" {
			return err
		}
		if seen++; seen > maxKubeletFiles {
			return fmt.Errorf("%s: more than %d files", dir, maxKubeletFiles)
		}
		k.merge(file, true)
		return nil
	}))
}

// PodManifests returns kubelet's directory of pod manifests, without the root; empty if its configuration has none.
func (k KubeletConfig) PodManifests() string {
	if dir := k.values["staticPodPath"]; path(dir) == nil {
		return dir
	}
	return ""
}

// KubeletConfig reads the configuration of the node's kubelet as it is now.
func (c *Config) KubeletConfig() KubeletConfig { return ReadKubelet(c.Platform, c.ask) }

// Unread returns why kubelet may read another directory than podManifests: the unreadable part of its configuration, or
// of that of the distribution. It is nil if the directory is known, or if the agent's configuration names it.
func (c *Config) Unread() error {
	if !c.isNodes {
		return nil
	}
	if err := errors.Join(c.KubeletConfig().Problems...); err != nil {
		return fmt.Errorf("cannot tell which directory kubelet reads: %s; set podManifests",
			strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// The keys read from the configuration of a distribution that starts kubelet, which are also flags of its program. The
// flag config names another file than the platform's.
const (
	keyDataDir    = "data-dir"
	keyKubeletArg = "kubelet-arg"
	flagConfig    = "config"
)

// shortFlags map short flags to their long names.
var shortFlags = map[string]string{"d": keyDataDir, "c": flagConfig}

// distribution is the configuration of one that starts kubelet (pkg/configfilearg of k3s): its file, overridden by the
// drop-ins, then by its variables and flags. A list of flags replaces one in a file.
type distribution struct {
	values map[string][]string // by key
	place  string              // the file with the flags of kubelet
	unreadable
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
	file := is.Environment[p.ConfigVariable]
	d.files(p, cmp.Or(file, flags.Last(flagConfig)))
	if dir := is.Environment[p.DataVariable]; dir != "" {
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

func (d *distribution) file(file string, mustBe bool) {
	keys := d.read(file, mustBe)
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

// kubelet returns the kubelet of a distribution that starts it: with drop-ins that it writes, and flags from its
// configuration.
func (d distribution) kubelet(p platform.Platform) KubeletConfig {
	k := KubeletConfig{map[string]string{}, map[string]string{}, d.unreadable}
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
	if dirs := readDistribution(p, ask).values[keyDataDir]; len(dirs) > 0 && path(dirs[len(dirs)-1]) == nil {
		return p.Moved(dirs[len(dirs)-1])
	}
	return p
}

// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/node/unit"
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

// kubelet is the part of its configuration that is read: the file, overridden by the drop-ins, then by the flags.
type kubelet struct {
	values map[string]string // by key
	places map[string]string // the place of each value
	// problems are unreadable parts: the values may differ then.
	problems []error
}

func readKubelet(p platform.Platform) kubelet {
	if p.KubeletDropIns != "" {
		return readDistribution(p).kubelet(p)
	}
	k := kubelet{values: map[string]string{}, places: map[string]string{}}
	is := unit.Read(p.Root, p.KubeletUnit)
	k.problems = is.Problems
	flags, err := kubeletFlags(is)
	k.problem(err)
	file := flags["config"]
	switch {
	case file != "":
		k.merge(filepath.Join(p.Root, "/", file), true)
	case len(is.Command) == 0 || err != nil:
		file = p.KubeletConfig
		k.merge(p.At(file), false)
	default: // without a file kubelet has its flags' defaults, which differ for this one
		k.values["readOnlyPort"], k.places["readOnlyPort"] = "10255", is.File
	}
	if dir := k.values["staticPodPath"]; dir != "" && !filepath.IsAbs(dir) {
		k.values["staticPodPath"] = filepath.Join("/", filepath.Dir(file), dir)
	}
	if dir := flags["config-dir"]; dir != "" {
		k.dropIns(filepath.Join(p.Root, "/", dir))
	}
	k.gates(flags[flagGates], is.File)
	for key, flag := range kubeletKeys {
		if value, has := flags[flag]; has {
			k.values[key], k.places[key] = value, is.File
		}
	}
	return k.normalized()
}

// normalized returns the values as kubelet interprets them.
func (k kubelet) normalized() kubelet {
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

func (k *kubelet) problem(err error) {
	if err != nil {
		k.problems = append(k.problems, outside.Error(err))
	}
}

// merge merges a file into the values, as a JSON merge patch: null removes a value.
func (k *kubelet) merge(file string, isNamed bool) {
	data, err := nodefile.Read(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) && !isNamed {
		return
	}
	var keys map[string]*yaml.Node
	if err == nil {
		keys, err = kubeletKeysOf(data)
	}
	if err != nil {
		k.problem(fmt.Errorf("%s: %w", file, err))
	}
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
func (k *kubelet) mergeGate(gates *yaml.Node, file string) {
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
func (k *kubelet) gates(flag, place string) {
	for gate := range strings.SplitSeq(flag, ",") {
		if name, value, _ := strings.Cut(strings.TrimSpace(gate), "="); name == eventedPLEG {
			k.values[eventedPLEG], k.places[eventedPLEG] = value, place
		}
	}
}

// EventedPLEG returns where kubelet's feature gate EventedPLEG is on; empty if it is off, as by default.
func EventedPLEG(p platform.Platform) string {
	k := readKubelet(p)
	if on, err := strconv.ParseBool(k.values[eventedPLEG]); err != nil || !on {
		return ""
	}
	return k.places[eventedPLEG]
}

// kubeletKeysOf reads the keys of a file. For a duplicate key kubelet uses the last value.
func kubeletKeysOf(data []byte) (map[string]*yaml.Node, error) {
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
func (k *kubelet) dropIns(dir string) {
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

// kubeletFlags reads the flags of kubelet from its unit; the last one with a name counts. A missing unit has no flags.
func kubeletFlags(u unit.Unit) (map[string]string, error) {
	flags := map[string]string{}
	if u.File == "" || len(u.Command) == 0 {
		return flags, nil
	}
	if filepath.Base(u.Command[0]) != "kubelet" {
		return flags, fmt.Errorf("%s: %s starts kubelet: cannot read its flags", u.File, outside.Line(u.Command[0], 128))
	}
	words := u.Command[1:]
	for n, word := range words {
		name, value, isWhole := strings.Cut(word, "=")
		name, isFlag := strings.CutPrefix(name, "--")
		if !isFlag {
			continue
		}
		if !isWhole && n+1 < len(words) {
			value = words[n+1]
		}
		if name = strings.ReplaceAll(name, "_", "-"); name != "address" || value != "" { // an empty address counts as unset
			flags[name] = value
		}
	}
	return flags, nil
}

// KubeletProblems returns why kubelet's configuration is not fully known: values from it may be wrong.
func KubeletProblems(p platform.Platform) []error { return readKubelet(p).problems }

// StaticPodPath returns kubelet's directory of pod manifests, with the root; empty if its configuration has none.
func StaticPodPath(p platform.Platform) string {
	if dir := readKubelet(p).values["staticPodPath"]; path(dir) == nil {
		return p.At(dir)
	}
	return ""
}

// Unread returns why kubelet may read another directory than podManifests: the unreadable part of its configuration, or
// of that of k3s or RKE2. It is nil if the directory is known, or if the agent's configuration names it.
func (c *Config) Unread() error {
	if !c.isNodes {
		return nil
	}
	if err := errors.Join(KubeletProblems(c.Platform)...); err != nil {
		return fmt.Errorf("cannot tell which directory kubelet reads: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

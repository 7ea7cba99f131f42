// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/platform"
)

// kubeletKeys are the keys of kubelet's configuration that are read, and the flags that win over them
// (k8s.io/kubernetes v1.34.4, cmd/kubelet/app/options).
var kubeletKeys = map[string]string{
	"staticPodPath":               "pod-manifest-path",
	"imageGCHighThresholdPercent": "image-gc-high-threshold",
	"readOnlyPort":                "read-only-port",
	"address":                     "address",
}

// maxKubeletFiles bounds the files of kubelet's --config-dir.
const maxKubeletFiles = 256

// kubelet is its configuration, as far as it is read: the file, over it the drop-ins, over them the flags.
type kubelet struct {
	values map[string]string // by key
	places map[string]string // where each value is written
	// problems are what could not be read: the values may be others then.
	problems []error
}

func readKubelet(p platform.Platform) kubelet {
	k := kubelet{values: map[string]string{}, places: map[string]string{}}
	unit := readUnit(p.Root, p.KubeletUnit)
	k.problems = unit.problems
	flags, err := kubeletFlags(unit)
	k.problem(err)
	file := flags["config"]
	if file == "" {
		file = p.KubeletConfig
	}
	k.merge(filepath.Join(p.Root, "/", file), flags["config"] != "")
	if dir := flags["config-dir"]; dir != "" {
		k.dropIns(filepath.Join(p.Root, "/", dir))
	}
	for key, flag := range kubeletKeys {
		if value, is := flags[flag]; is {
			k.values[key], k.places[key] = value, unit.file
		}
	}
	k.values["staticPodPath"] = trimSlash(k.values["staticPodPath"])
	return k
}

func trimSlash(dir string) string {
	if dir == "/" {
		return dir
	}
	return strings.TrimRight(dir, "/")
}

func (k *kubelet) problem(err error) {
	if err != nil {
		k.problems = append(k.problems, outside.Error(err))
	}
}

// merge lays a file over what was read, as a JSON merge patch does it: null takes a value back.
func (k *kubelet) merge(file string, isNamed bool) {
	data, err := nodefile.Read(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) && !isNamed {
		return
	}
	var keys map[string]yaml.Node
	if err == nil {
		err = yaml.Unmarshal(plainJSON(data), &keys)
	}
	if err != nil {
		k.problem(fmt.Errorf("%s: %w", file, err))
	}
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

// plainJSON writes JSON without the escapes that YAML does not know; other text stays.
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

// dropIns merges the *.conf of kubelet's --config-dir and of the directories below it, in lexical order
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

// kubeletFlags reads the flags of kubelet from its unit; the last one of a name counts. No unit has no flags.
func kubeletFlags(u unit) (map[string]string, error) {
	flags := map[string]string{}
	if u.file == "" || len(u.start) == 0 {
		return flags, nil
	}
	program := filepath.Base(strings.TrimLeft(u.start[0], "@-:+!"))
	if program != "kubelet" {
		return flags, fmt.Errorf("%s: %s starts kubelet: its flags are not known", u.file, outside.Line(u.start[0], 128))
	}
	words := u.start[1:]
	for n, word := range words {
		name, value, isWhole := strings.Cut(word, "=")
		name, isFlag := strings.CutPrefix(name, "--")
		if !isFlag {
			continue
		}
		if !isWhole && n+1 < len(words) {
			value = words[n+1]
		}
		flags[strings.ReplaceAll(name, "_", "-")] = value
	}
	return flags, nil
}

// KubeletProblems are why kubelet's configuration is not wholly known: what is taken from it may be wrong.
func KubeletProblems(p platform.Platform) []error { return readKubelet(p).problems }

// StaticPodPath is where kubelet reads pod manifests, with the root before it; empty where its configuration does not
// say.
func StaticPodPath(p platform.Platform) string {
	if dir := readKubelet(p).values["staticPodPath"]; path(dir) == nil {
		return p.At(dir)
	}
	return ""
}

// exists reports whether a path is there, or may be.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

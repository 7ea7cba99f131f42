// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Unit is the command of a unit.
type Unit struct {
	File     string   // empty if there is no such unit
	Command  []string // the program and its arguments, with variables substituted
	Problems []error  // parts that could not be read
	// Environment are the program's environment variables.
	Environment map[string]string
}

// dirs are systemd's directories for units; the first match wins (systemd.unit(5)).
var dirs = []string{
	"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
	"/lib/systemd/system",
}

// maxFile limits a unit, a drop-in and an environment file, in bytes.
const maxFile = 256 << 10

// Read reads a unit below root. Like systemd, it accepts files of any owner.
func Read(root, name string) Unit {
	r := reader{root: root, name: name, env: map[string]string{}}
	for _, dir := range slices.Backward(dirs) {
		if file := filepath.Join(root, dir, name); exists(file) {
			r.File = file
		}
	}
	if r.File == "" {
		return r.Unit
	}
	r.settings(r.File)
	for _, file := range dropIns(root, name) {
		r.settings(file)
	}
	for _, file := range r.files { // they override Environment (systemd.exec(5))
		r.environmentFile(file)
	}
	for _, name := range r.unset {
		delete(r.env, name)
	}
	r.Command, r.Environment = r.expand(), r.env
	return r.Unit
}

// dropIns returns the drop-ins of a unit, in order. Those of the unit override those of all services, and an earlier
// directory overrides a later one.
func dropIns(root, name string) []string {
	byName := map[string]string{}
	for _, sub := range []string{strings.TrimPrefix(filepath.Ext(name), ".") + ".d", name + ".d"} {
		for _, dir := range slices.Backward(dirs) {
			found, _ := filepath.Glob(filepath.Join(root, dir, sub, "[^.]*.conf")) // the pattern is valid
			for _, file := range found {
				byName[filepath.Base(file)] = file
			}
		}
	}
	var files []string
	for _, base := range slices.Sorted(maps.Keys(byName)) {
		files = append(files, byName[base])
	}
	return files
}

// exists reports whether a path exists, or may exist.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// reader is the result of reading a unit so far.
type reader struct {
	Unit

	root, name string
	command    string // the last ExecStart
	env        map[string]string
	files      []string // EnvironmentFile
	unset      []string // UnsetEnvironment
}

func (r *reader) problem(format string, args ...any) {
	r.Problems = append(r.Problems, outside.Error(fmt.Errorf(format, args...)))
}

func (r *reader) load(file string, mayMiss bool) string {
	f, err := nodefile.Open(file)
	if mayMiss && errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	var data []byte
	if err == nil {
		data, err = outside.ReadAll(f, maxFile)
		_ = f.Close()
	}
	if err != nil {
		r.problem("%s: %w", file, err)
	}
	return string(data)
}

// settings reads the settings of a unit or a drop-in. An empty value resets the earlier ones.
func (r *reader) settings(file string) {
	for _, s := range parse(r.load(file, false)) {
		if s.section != "Service" {
			continue
		}
		switch s.key {
		case "ExecStart":
			if _, isWhole := split(s.value, true); !isWhole {
				r.problem("%s: ExecStart: a quote does not end", file)
				return // as systemd does
			}
			r.command = s.value
		case "Environment":
			r.environment(s.value)
		case "EnvironmentFile":
			if r.files = append(r.files, s.value); s.value == "" {
				r.files = nil
			}
		case "UnsetEnvironment":
			words, _ := split(s.value, true)
			if r.unset = append(r.unset, words...); s.value == "" {
				r.unset = nil
			}
		}
	}
}

// environment reads the assignments of a setting.
func (r *reader) environment(value string) {
	if value == "" {
		clear(r.env)
	}
	words, _ := split(value, true)
	for _, word := range words {
		if name, text, is := strings.Cut(r.specifiers(word), "="); is && isVariable(name) {
			r.env[name] = text
		}
	}
}

func (r *reader) environmentFile(file string) {
	file, mayMiss := strings.CutPrefix(file, "-")
	if strings.ContainsAny(file, "*?[") {
		r.problem("EnvironmentFile=%s is not read", outside.Line(file, 128))
		return
	}
	text := r.load(filepath.Join(r.root, "/", r.specifiers(file)), mayMiss)
	maps.Copy(r.env, parseEnvironment(text))
}

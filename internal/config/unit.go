// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// unit is what a unit of systemd starts.
type unit struct {
	file     string   // empty: there is none
	start    []string // the words of the last ExecStart, with the variables of the environment
	problems []error  // what could not be read of it
}

// unitDirs are where systemd looks for units, the first wins (systemd.unit(5)).
var unitDirs = []string{
	"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
	"/lib/systemd/system",
}

// maxUnit bounds a unit, a drop-in and a file of its environment, in bytes.
const maxUnit = 256 << 10

// readUnit reads a unit with its drop-ins. They are systemd's, which reads them whoever owns them.
func readUnit(root, name string) unit {
	r := unitReader{root: root, env: map[string]string{}}
	dropIns := map[string]string{}
	for _, dir := range slices.Backward(unitDirs) {
		if file := filepath.Join(root, dir, name); exists(file) {
			r.file = file
		}
		found, _ := filepath.Glob(filepath.Join(root, dir, name+".d", "*.conf")) // the pattern is good
		for _, file := range found {
			dropIns[filepath.Base(file)] = file
		}
	}
	if r.file == "" {
		return r.unit
	}
	r.read(r.file)
	for _, base := range slices.Sorted(maps.Keys(dropIns)) {
		r.read(dropIns[base])
	}
	for _, file := range r.files { // they win over Environment (systemd.exec(5))
		r.environmentFile(file)
	}
	r.start = r.expand(r.command)
	return r.unit
}

type unitReader struct {
	unit

	root    string
	command string
	env     map[string]string
	files   []string
}

func (r *unitReader) load(file string, mayMiss bool) string {
	f, err := os.Open(file)
	if mayMiss && errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	var data []byte
	if err == nil {
		data, err = outside.ReadAll(f, maxUnit)
		_ = f.Close()
	}
	if err != nil {
		r.problems = append(r.problems, outside.Error(fmt.Errorf("%s: %w", file, err)))
	}
	return strings.ReplaceAll(string(data), "\\\n", " ")
}

// read takes the settings of a unit or a drop-in. An empty value takes the earlier ones back.
func (r *unitReader) read(file string) {
	for line := range strings.Lines(r.load(file, false)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "ExecStart":
			r.command = value
		case "Environment":
			if value == "" {
				clear(r.env)
			}
			for _, word := range words(value) {
				name, text, _ := strings.Cut(word, "=")
				r.env[name] = text
			}
		case "EnvironmentFile":
			if r.files = append(r.files, value); value == "" {
				r.files = nil
			}
		}
	}
}

func (r *unitReader) environmentFile(file string) {
	file, mayMiss := strings.CutPrefix(file, "-")
	if strings.ContainsAny(file, "*?[%") {
		r.problems = append(r.problems, fmt.Errorf("EnvironmentFile=%s is not read", outside.Line(file, 128)))
		return
	}
	for line := range strings.Lines(r.load(filepath.Join(r.root, "/", file), mayMiss)) {
		line = strings.TrimSpace(line)
		name, text, is := strings.Cut(line, "=")
		if is && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			r.env[strings.TrimSpace(name)] = strings.Join(words(text), " ")
		}
	}
}

var variable = regexp.MustCompile(`\$\{(\w+)\}`)

// expand splits a command into words. $NAME alone becomes the words of its value, ${NAME} a part of one word.
func (r *unitReader) expand(command string) []string {
	var out []string
	for _, word := range words(command) {
		if name, is := strings.CutPrefix(word, "$"); is && !strings.HasPrefix(name, "{") {
			out = append(out, words(r.env[name])...)
			continue
		}
		out = append(out, variable.ReplaceAllStringFunc(word, func(v string) string { return r.env[v[2:len(v)-1]] }))
	}
	return out
}

// words splits a text at white space outside of quotes, and takes the quotes off.
func words(text string) []string {
	var out []string
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, inWord = r, true
		case quote == 0 && strings.ContainsRune(" \t\r\n", r):
			if inWord {
				out = append(out, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if inWord {
		out = append(out, word.String())
	}
	return out
}

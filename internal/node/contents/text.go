// SPDX-License-Identifier: Apache-2.0

package contents

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
)

func tooMany(most int, what string) error { return fmt.Errorf("more than %d %s", most, what) }

// readDpkg returns the installed packages of dpkg's status. A file of status.d has one package, which is installed
// although it has no state.
func readDpkg(db []byte, isOfDistroless bool) ([]Package, error) {
	return paragraphs(db, bytes.EqualFold, func(field map[string]string) (Package, bool) {
		state := strings.Fields(field["Status"])
		isInstalled := len(state) == 3 && state[2] != "not-installed" && state[2] != "config-files" ||
			len(state) == 0 && isOfDistroless
		source, _, _ := strings.Cut(field["Source"], " ")
		if source == "" {
			source = field["Package"]
		}
		return Package{Dpkg, field["Package"], field["Architecture"], field["Version"], source}, isInstalled
	}, "Package", "Status", "Architecture", "Version", "Source")
}

// readApk returns the packages of apk's installed.
func readApk(db []byte) ([]Package, error) {
	return paragraphs(db, bytes.Equal, func(field map[string]string) (Package, bool) {
		return Package{Apk, field["P"], field["A"], field["V"], field["o"]}, true
	}, "P", "A", "V", "o")
}

// paragraphs reads fields in paragraphs, which empty lines end. Like dpkg and apk, it takes a file whose last line has
// no end for a truncated one.
func paragraphs(
	db []byte, isSame func(a, b []byte) bool, packageOf func(map[string]string) (Package, bool), names ...string,
) (packages []Package, err error) {
	if len(db) > 0 && db[len(db)-1] != '\n' {
		return nil, errTruncated
	}
	keys := make([][]byte, len(names)) // once, not for each line
	for n, name := range names {
		keys[n] = []byte(name)
	}
	field := map[string]string{}
	end := func() error {
		if len(field) == 0 {
			return nil
		}
		p, isInstalled := packageOf(field)
		clear(field)
		switch {
		case !isInstalled:
			return nil
		case p.Name == "" || p.Version == "":
			return fmt.Errorf("a package without a name or version: %w", errTruncated)
		case len(packages) == maxPackages:
			return tooMany(maxPackages, "packages")
		}
		packages = append(packages, p)
		return nil
	}
	for line := range bytes.Lines(db) {
		text := bytes.TrimRight(line, "\r\n")
		if len(bytes.TrimSpace(text)) == 0 {
			if err := end(); err != nil {
				return nil, err
			}
			continue
		}
		key, value, _ := bytes.Cut(text[:min(len(text), maxLine)], []byte(":"))
		for n, name := range names {
			if isSame(keys[n], key) {
				field[name] = strings.TrimSpace(string(value))
			}
		}
	}
	return packages, end()
}

// readGo returns the modules of a Go program; none if another compiler made it.
func readGo(name string, program io.ReaderAt) ([]Package, error) {
	if _, err := elf.NewFile(program); err != nil {
		return nil, fmt.Errorf("%w: %w", errTruncated, err)
	}
	info, err := buildinfo.Read(program)
	if err != nil {
		return nil, nil //nolint:nilerr // it has none, as its file is whole
	}
	main := info.Main
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (main.Version == "" || main.Version == "(devel)") {
			main.Version = s.Value
		}
	}
	packages := []Package{{Format: Go, Name: "go", Version: strings.TrimPrefix(info.GoVersion, "go"), Source: name}}
	for n, m := range append([]*debug.Module{&main}, info.Deps...) {
		if m.Replace != nil {
			m.Version = m.Replace.Version
		}
		if n > 0 || m.Path != "" {
			packages = append(packages, Package{Go, m.Path, "", cmp.Or(m.Version, "(devel)"), name})
		}
	}
	return packages, nil
}

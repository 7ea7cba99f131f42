// SPDX-License-Identifier: Apache-2.0

package contents

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"io"
	"strings"
)

func tooMany(most int, what string) error { return fmt.Errorf("more than %d %s", most, what) }

// readDpkg returns the installed packages of dpkg's status; a file of status.d has one package, which is installed.
func readDpkg(db []byte) ([]Package, error) {
	return paragraphs(db, ": ", func(field map[string]string) (Package, bool) {
		state := strings.Fields(field["Status"])
		isInstalled := len(state) != 3 || state[2] != "not-installed" && state[2] != "config-files"
		source, _, _ := strings.Cut(field["Source"], " ")
		if source == "" {
			source = field["Package"]
		}
		return Package{Dpkg, field["Package"], field["Architecture"], field["Version"], source}, isInstalled
	}, "Package", "Status", "Architecture", "Version", "Source")
}

// readApk returns the packages of apk's installed.
func readApk(db []byte) ([]Package, error) {
	return paragraphs(db, ":", func(field map[string]string) (Package, bool) {
		return Package{Apk, field["P"], field["A"], field["V"], field["o"]}, true
	}, "P", "A", "V", "o")
}

// paragraphs reads fields in paragraphs, which empty lines end. Like dpkg and apk, it takes a file whose last line has
// no end for a truncated one.
func paragraphs(
	db []byte, colon string, packageOf func(map[string]string) (Package, bool), names ...string,
) (packages []Package, err error) {
	if len(db) > 0 && db[len(db)-1] != '\n' {
		return nil, errTruncated
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
		for _, name := range names {
			if value, is := bytes.CutPrefix(text, []byte(name+colon)); is {
				field[name] = strings.TrimSpace(string(value[:min(len(value), maxText)]))
			}
		}
	}
	return packages, end()
}

// readGo returns the modules of a Go program; none if it is none.
func readGo(name string, program io.ReaderAt) []Package {
	info, err := buildinfo.Read(program)
	if err != nil {
		return nil // an ELF file of another compiler
	}
	main := info.Main
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (main.Version == "" || main.Version == "(devel)") {
			main.Version = s.Value
		}
	}
	packages := []Package{{Format: Go, Name: "go", Version: strings.TrimPrefix(info.GoVersion, "go"), Source: name}}
	if main.Path != "" {
		packages = append(packages, Package{Format: Go, Name: main.Path, Version: main.Version, Source: name})
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m.Version = m.Replace.Version
		}
		packages = append(packages, Package{Format: Go, Name: m.Path, Version: m.Version, Source: name})
	}
	return packages
}

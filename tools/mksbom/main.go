// SPDX-License-Identifier: Apache-2.0

// Command mksbom prints what a program is linked of, as CycloneDX: mksbom PROGRAM. It reads what Go's linker wrote into
// the program (`go version -m`), so the list is of this build and needs no network.
package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"runtime/debug"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mksbom PROGRAM")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "mksbom: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func run(program string) error {
	said, err := exec.CommandContext(context.Background(), program, "version").Output()
	if err != nil {
		return err
	}
	words := strings.Fields(string(said)) // image-update-agent 1.2.0 (go1.26.6, linux/amd64)
	if len(words) < 2 {
		return fmt.Errorf("version: no version in %q", said)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(documentOf(info, words[1]))
}

// document is a bill of materials of CycloneDX 1.6. It has neither a serial number nor a time, so that the same
// program gives the same bytes.
type document struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Ref     string `json:"bom-ref"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

// documentOf lists the standard library, by the name that databases of vulnerabilities have for it, and each module.
func documentOf(info *debug.BuildInfo, version string) document {
	main := newComponent("application", info.Main.Path, version)
	main.Name = path.Base(info.Path)
	components := []component{newComponent("library", "stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		components = append(components, newComponent("library", module.Path, module.Version))
	}
	return document{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: metadata{main}, Components: components,
	}
}

func newComponent(kind, name, version string) component {
	purl := "pkg:golang/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Ref: purl, Type: kind, Name: name, Version: version, PURL: purl}
}

// SPDX-License-Identifier: Apache-2.0

// Command mksbom prints the modules linked into a program, as CycloneDX: mksbom PROGRAM. It reads the data that Go's
// linker wrote into the program (`go version -m`), so the list is of this build and needs no network.
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
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: mksbom PROGRAM [VERSION]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]...); err != nil {
		fmt.Fprintf(os.Stderr, "mksbom: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// run runs the program for its version if none is given: a program of another architecture cannot be run.
func run(program string, version ...string) error {
	if len(version) == 0 {
		said, err := exec.CommandContext(context.Background(), program, "version").Output()
		if err != nil {
			return err
		}
		words := strings.Fields(string(said)) // image-update-agent 1.2.0 (go1.26.6, linux/amd64)
		if len(words) < 2 {
			return fmt.Errorf("version: no version in %q", said)
		}
		version = words[1:2]
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(documentOf(info, version[0]))
}

// document is a CycloneDX 1.6 bill of materials. It has neither a serial number nor a time, so that the same program
// gives the same bytes.
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

// documentOf lists the standard library, by its name in vulnerability databases, and each module.
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

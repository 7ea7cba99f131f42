// SPDX-License-Identifier: Apache-2.0

// Command mkman prints a man page: mkman PROGRAM FILE.md, from the root of the sources. The program's help describes
// the verbs, packaging/config.yaml the settings.
//
// Commands and flags stand in --help, settings in the shipped configuration: a page that repeats them is soon wrong.
// Cobra's generator writes one page for each command and knows no settings.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/kubic-project/image-update-agent/tools/manpage"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mkman PROGRAM FILE.md")
		os.Exit(2)
	}
	page, err := page(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintf(os.Stderr, "mkman: %s: %v\n", os.Args[2], err)
		os.Exit(1)
	}
	if _, err := os.Stdout.Write(page); err != nil {
		os.Exit(1)
	}
}

func page(program, file string) ([]byte, error) {
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(context.Background(), program, args...).Output()
		return string(out), err
	}
	version, err := run("version")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return manpage.Page(string(text), strings.Fields(version)[1], map[string]func() (string, error){
		"verbs": func() (string, error) {
			return manpage.Verbs(func(path ...string) (string, error) { return run(append([]string{"help"}, path...)...) })
		},
		"settings": func() (string, error) {
			config, err := os.ReadFile("packaging/config.yaml")
			if err != nil {
				return "", err
			}
			return manpage.Settings(string(config))
		},
	})
}

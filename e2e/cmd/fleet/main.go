// SPDX-License-Identifier: Apache-2.0

// Command fleet simulates fleets of nodes and writes the figures and tables of docs/dev/fleet-figures.md.
//
//	fleet DOCS
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubic-project/image-update-agent/e2e/fleet"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("want DOCS, the directory")
	}
	page := filepath.Join(args[0], fleet.Page)
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	made := fleet.Make()
	renewed, err := made.Renew(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	for name, figure := range made.Figures {
		if err := os.WriteFile(filepath.Join(args[0], name), figure, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(page, []byte(renewed), 0o644)
}

// SPDX-License-Identifier: Apache-2.0

// Command mkholds writes the table of holds into a page: mkholds docs/operations.md. agent/status has the table.
package main

import (
	"fmt"
	"os"

	"github.com/kubic-project/image-update-agent/tools/manpage"
)

func main() {
	for _, name := range os.Args[1:] {
		if err := write(name); err != nil {
			fmt.Fprintf(os.Stderr, "mkholds: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

func write(name string) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	page, err := manpage.WithHolds(string(old))
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(page), 0o644)
}

// SPDX-License-Identifier: Apache-2.0

// Command mktables updates the generated tables of pages, from the root of the sources: mktables FILE.md... The tables
// come from agent/status and from the metrics that internal/face/metrics serves.
package main

import (
	"fmt"
	"os"

	"github.com/kubic-project/image-update-agent/tools/manpage"
)

// metricsFile is the output of /metrics, maintained by a test of internal/face/metrics.
const metricsFile = "internal/face/metrics/testdata/full.txt"

func main() {
	for _, name := range os.Args[1:] {
		if err := update(name); err != nil {
			fmt.Fprintf(os.Stderr, "mktables: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

func update(name string) error {
	metrics, err := os.ReadFile(metricsFile)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	page, err := manpage.WithTables(string(old), string(metrics))
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(page), 0o644)
}

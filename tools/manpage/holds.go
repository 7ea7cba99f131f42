// SPDX-License-Identifier: Apache-2.0

package manpage

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// sample has a value in each field that a remedy may name.
var sample = status.Hold{Image: "IMAGE", Grain: "GRAIN"}

// holds describes the holds of the table that the filter takes, as a list of terms.
func holds(takes func(status.HoldKind) bool) string {
	var out strings.Builder
	for _, kind := range status.HoldKinds() {
		if takes(kind) {
			fmt.Fprintf(&out, "`%s`\n:   %s. Remedy: %s\n\n", kind.Name, kind.Meaning, kind.Remedy(sample))
		}
	}
	return out.String()
}

// table is where a page has the table of holds.
var table = regexp.MustCompile(`(?s)(<!-- holds, by make holds -->\n).*?(<!-- end of holds -->\n)`)

// WithHolds returns a page of Markdown with the table of holds of today between its marks.
func WithHolds(page string) (string, error) {
	if !table.MatchString(page) {
		return "", fmt.Errorf("want <!-- holds, by make holds --> and <!-- end of holds -->")
	}
	var rows strings.Builder
	rows.WriteString("| hold | what it means | what ends it |\n|---|---|---|\n")
	for _, kind := range status.HoldKinds() {
		meaning := kind.Meaning
		if kind.OnlyAuto {
			meaning = "mode `auto`: " + meaning
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", kind.Name, meaning, kind.Remedy(sample))
	}
	return table.ReplaceAllStringFunc(page, func(old string) string {
		marks := table.FindStringSubmatch(old)
		return marks[1] + rows.String() + marks[2]
	}), nil
}

// SPDX-License-Identifier: Apache-2.0

package manpage

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// sample has a value in each field that a remedy may use.
var sample = status.Hold{Image: "IMAGE", Grain: "GRAIN"}

// marks enclose a generated table of a page: both contain its name.
var marks = regexp.MustCompile(`(?s)(<!-- ([a-z ]+), by make tables -->\n).*?(<!-- end of ([a-z ]+) -->\n)`)

// WithTables returns a page of Markdown with its generated tables as the code has them now. metrics is the output of
// /metrics, in Prometheus' text format. It is an error if the page has no table, or a table has an unknown name.
func WithTables(page, metrics string) (string, error) {
	tables := map[string]func() string{
		"states":             stateTable,
		"list of states":     stateList,
		"holds":              func() string { return holdList(false) },
		"holds of mode auto": func() string { return holdList(true) },
		"metrics":            func() string { return metricList(metrics) },
	}
	if !marks.MatchString(page) {
		return "", fmt.Errorf("want <!-- NAME, by make tables --> and <!-- end of NAME -->")
	}
	var failed error
	out := marks.ReplaceAllStringFunc(page, func(old string) string {
		m := marks.FindStringSubmatch(old)
		table, known := tables[m[2]]
		if !known || m[4] != m[2] {
			failed = fmt.Errorf("<!-- %s, by make tables -->: no such table, or another one ends", m[2])
			return old
		}
		return m[1] + table() + m[3]
	})
	return out, failed
}

// stateTable returns the table of states for a page that GitHub shows.
func stateTable() string {
	var out strings.Builder
	out.WriteString("| state | meaning | what to do |\n|---|---|---|\n")
	for _, kind := range status.StateKinds() {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", kind.State, kind.Meaning, kind.Remedy)
	}
	return out.String()
}

// stateList returns the list of states for a manual page.
func stateList() string {
	var out strings.Builder
	for _, kind := range status.StateKinds() {
		fmt.Fprintf(&out, "\n`%s`\n:   %s\n", kind.State, kind.Meaning)
	}
	return out.String() + "\n"
}

// holdList returns the list of the holds that block every apply, or of those that block automatic applies only.
func holdList(onlyAuto bool) string {
	var out strings.Builder
	for _, kind := range status.HoldKinds() {
		if kind.OnlyAuto != onlyAuto {
			continue
		}
		also := ""
		if kind.HoldsRollbacks() {
			also = "; also holds `rollback`"
		}
		fmt.Fprintf(&out, "\n`%s`\n:   %s%s. Remedy: %s\n", kind.Name, kind.Meaning, also, kind.Remedy(sample))
	}
	return out.String() + "\n"
}

var (
	helpLine = regexp.MustCompile(`(?m)^# HELP (\w+) (.+)\n# TYPE \w+ (\w+)\n(.*)$`)
	labelOf  = regexp.MustCompile(`(\w+)="`)
)

// metricList returns the list of metrics with their labels, from the output of /metrics.
func metricList(metrics string) string {
	var out strings.Builder
	for _, m := range helpLine.FindAllStringSubmatch(metrics, -1) {
		name, help, kind := m[1], m[2], m[3]
		for _, label := range labelOf.FindAllStringSubmatch(m[4], -1) {
			if label[1] != "le" {
				kind += ", " + label[1]
			}
		}
		fmt.Fprintf(&out, "\n`%s` (%s)\n:   %s\n", name, kind, help)
	}
	return out.String() + "\n"
}

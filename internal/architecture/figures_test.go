// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A row of figures ends with its benchmark and commit, or with a link to its test.
var (
	measured  = regexp.MustCompile("^`(\\w+|make build)`, [0-9a-f]{7,8}(; [^;]+ [0-9a-f]{7,8})*$")
	benchmark = regexp.MustCompile(`(?m)^func Benchmark(\w+)\(`)
)

// Each row of the figures can be measured again.
func TestFiguresNameTheirCommandAndCommit(t *testing.T) {
	t.Parallel()
	rows := figures(pages(t)["docs/dev/performance.md"])
	require.Greater(t, len(rows), 50, "the walk must see the rows")
	all := benchmarks(t)
	for _, cells := range rows {
		last := cells[len(cells)-1]
		if named.MatchString(last) {
			continue // TestEveryTestNamedOnPagesExists
		}
		found := measured.FindStringSubmatch(last)
		if assert.NotNil(t, found, "%s: %s", cells[0], last) && found[1] != "make build" {
			known := slices.ContainsFunc(all, func(name string) bool { return strings.Contains(name, found[1]) })
			assert.True(t, known, "%s: no benchmark %s", cells[0], found[1])
		}
	}
}

// The figures are read at a glance: the page has three screens, and all its tables have the same columns.
func TestFiguresFitOnThreeScreens(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/dev/performance.md"]
	assert.LessOrEqual(t, strings.Count(page, "\n"), 140, "lines")
	for _, cells := range figures(page) {
		assert.Len(t, cells, 5, "%s: cells", cells[0])
	}
}

// The figures of fleets are made by a command.
func TestFiguresOfFleetsNameTheirCommand(t *testing.T) {
	t.Parallel()
	assert.Contains(t, pages(t)["docs/dev/fleet-figures.md"], "`make fleet`")
}

// figures returns the cells of each row of a page's tables, without the head of a table.
func figures(page string) (rows [][]string) {
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		isHead := i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|---")
		if !strings.HasPrefix(line, "| ") || isHead {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// benchmarks returns the names of all benchmarks.
func benchmarks(t *testing.T) (all []string) {
	t.Helper()
	names, err := tracked(t, root)
	require.NoError(t, err)
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		code, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		for _, found := range benchmark.FindAllStringSubmatch(string(code), -1) {
			all = append(all, found[1])
		}
	}
	return all
}

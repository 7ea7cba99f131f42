// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../../.."

// Each guard is in its file, and its row of the page lists each of its tests.
func TestGuardsAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	guards, err := parse(guardsText)
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs/dev/security-evidence.md"))
	require.NoError(t, err)
	rows := map[string]string{}
	_, folded, found := strings.Cut(string(page), "\n## Tests\n")
	require.True(t, found)
	for _, row := range regexp.MustCompile(`(?m)^\| ([TN]\d+) \|.*\|$`).FindAllStringSubmatch(folded, -1) {
		rows[row[1]] = row[0]
	}
	guarded := map[string]bool{}
	for _, g := range guards {
		guarded[g.row] = true
		text, err := os.ReadFile(filepath.Join(root, g.file))
		if assert.NoError(t, err) {
			_, err = g.takenFrom(string(text))
			assert.NoError(t, err, "%s %s", g.row, g.file)
		}
		for _, test := range g.tests {
			if !strings.Contains(rows[g.row], "[`"+test+"`](../../"+g.room+"/") {
				t.Errorf("docs/dev/security-evidence.md: %s does not name %s", g.row, test)
			}
		}
	}
	for row := range rows {
		assert.True(t, guarded[row], "%s: no guard of it is in guards.txt", row)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := parse("# a comment\n\nT1 a/b.go TestA TestB\n-\tif x {\n-\t}\n+\tif y {\n\nN2 c/d.go in:e TestC\n-z\n")
	require.NoError(t, err)
	assert.Equal(t, []guard{
		{row: "T1", file: "a/b.go", room: "a", tests: []string{"TestA", "TestB"}, old: "\tif x {\n\t}\n", new: "\tif y {\n"},
		{row: "N2", file: "c/d.go", room: "e", tests: []string{"TestC"}, old: "z\n"},
	}, got)
	for _, bad := range []string{"T1 a.go\n-x\n", "T1 a.go TestA\n", "T1 a.go TestA\n-x\n+x\n", "T1 a.go TestA\nT2 b.go TestB\n-x\n", "-x\n"} {
		_, err := parse(bad)
		require.Error(t, err, bad)
	}
}

// A module with one guard: with its test, with a test that checks nothing, and out of date.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/x\n\ngo 1.26\n",
		"x/x.go": "package x\n\nfunc Allowed(n int) bool {\n\treturn n < 3\n}\n",
		"x/y_test.go": "package x\n\nimport \"testing\"\n\nfunc TestLooks(t *testing.T) {\n\tif Allowed(3) {\n\t\tt.Fatal()\n\t}\n}\n\n" +
			"func TestLooksAway(t *testing.T) {}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	on := tree{dir}
	guardBy := func(old, instead string, tests ...string) guard {
		return guard{row: "T1", file: "x/x.go", room: "x", tests: tests, old: old, new: instead}
	}
	for name, c := range map[string]struct {
		guard guard
		want  verdict
	}{
		"a test looks":   {guardBy("n < 3", "true", "TestLooks"), killed},
		"none looks":     {guardBy("n < 3", "true", "TestLooksAway"), survived},
		"out of date":    {guardBy("n < 4", "true", "TestLooks"), untried},
		"no such test":   {guardBy("n < 3", "true", "TestNone"), untried},
		"does not build": {guardBy("n < 3", "yes", "TestLooks"), untried},
	} {
		v, detail := on.try(t.Context(), c.guard)
		assert.Equal(t, c.want, v, "%s: %s", name, detail)
	}
	require.NoError(t, on.sound(t.Context(), []guard{guardBy("n < 3", "true", "TestLooks")}))
	text, err := os.ReadFile(filepath.Join(dir, "x/x.go"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "n < 3", "put back")
}

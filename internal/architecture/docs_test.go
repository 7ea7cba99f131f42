// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	// A test named on a page is a link to its file: [`TestName`](../pkg/file_test.go).
	named = regexp.MustCompile("\\[`((?:Test|Fuzz|Benchmark)\\w+)`\\]\\(([^)\\s]+)\\)")
	// Other text that looks like a test's name must be such a link.
	looksNamed = regexp.MustCompile("`(?:Test|Fuzz|Benchmark)[A-Z0-9]\\w+`")
)

// pages returns the pages for people, by path from the module's root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	fsys := os.DirFS(root)
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/dev/decisions/*.md"} {
		names, err := fs.Glob(fsys, pattern)
		require.NoError(t, err)
		for _, name := range names {
			text, err := fs.ReadFile(fsys, name)
			require.NoError(t, err)
			out[name] = string(text)
		}
	}
	return out
}

func TestEveryLinkOfThePagesHasATarget(t *testing.T) {
	t.Parallel()
	all := pages(t)
	assert.Greater(t, len(all), 60, "the walk must see the pages")
	links := 0
	for name, text := range all {
		for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			links++
			if problem := leads(all, name, found[1]); problem != "" {
				t.Errorf("%s: %s: %s", name, found[1], problem)
			}
		}
	}
	assert.Greater(t, links, 100)
}

// leads returns the problem of a link on a page. It does not check links to the network.
func leads(all map[string]string, page, target string) string {
	if strings.HasPrefix(target, "https://") {
		return ""
	}
	file, anchor, _ := strings.Cut(target, "#")
	at := page
	if file != "" {
		at = path.Join(path.Dir(page), file)
	}
	if _, err := os.Stat(filepath.Join(root, at)); err != nil || strings.HasPrefix(at, "../") {
		return "there is no such file"
	}
	if anchor != "" && !slices.Contains(anchors(all[at]), anchor) {
		return "there is no such heading"
	}
	return ""
}

// anchors returns the link anchors of a page's headings, as GitHub makes them.
func anchors(text string) []string {
	var out []string
	seen := map[string]int{}
	for _, found := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := strings.ToLower(link.ReplaceAllString(found[1], "]"))
		name = strings.ReplaceAll(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, ""), " ", "-")
		seen[name]++
		if n := seen[name]; n > 1 {
			name = fmt.Sprintf("%s-%d", name, n-1)
		}
		out = append(out, name)
	}
	return out
}

// The installed pages link only to each other.
func TestInstalledPagesHaveNoDeadLinks(t *testing.T) {
	t.Parallel()
	installed := t.TempDir()
	install := exec.CommandContext(t.Context(), "make", "-C", root, "installdocs", "DESTDIR="+installed, "DOCDIR=/doc")
	out, err := install.CombinedOutput()
	require.NoError(t, err, string(out))
	names, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	require.NoError(t, err)
	require.Greater(t, len(names), 8, "the walk must see the pages")
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(installed, "doc", filepath.Base(name)))
		require.NoError(t, err)
		for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			target, _, _ := strings.Cut(found[1], "#")
			if target == "" || strings.HasPrefix(target, "https://") {
				continue
			}
			assert.FileExists(t, filepath.Join(installed, "doc", target), "%s: %s", name, found[1])
		}
	}
}

// A test that a page names is in the linked file.
func TestEveryTestNamedOnPagesExists(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for name, text := range all {
		for _, found := range named.FindAllStringSubmatch(text, -1) {
			file := path.Join(path.Dir(name), found[2])
			code, err := os.ReadFile(filepath.Join(root, file))
			if assert.NoError(t, err, name) {
				assert.Regexp(t, `(?m)^func `+found[1]+`\(`, string(code), "%s: %s", name, file)
			}
		}
		loose := looksNamed.FindAllString(named.ReplaceAllString(text, ""), -1)
		assert.Empty(t, loose, "%s: write [`TestName`](file_test.go)", name)
	}
	assert.Greater(t, len(named.FindAllString(all["docs/dev/security-evidence.md"], -1)), 50)
}

// Each threat has its protection and its evidence in words, and names a test in the folded table.
func TestEveryThreatHasItsTest(t *testing.T) {
	t.Parallel()
	claims, folded, found := strings.Cut(pages(t)["docs/dev/security-evidence.md"], "\n## Tests\n")
	require.True(t, found)
	tests := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([TN]\d+) \| (.+) \|$`).FindAllStringSubmatch(folded, -1) {
		assert.Regexp(t, named, row[2], row[1])
		assert.NotContains(t, tests, row[1], "twice")
		tests[row[1]] = row[2]
	}
	numbers := map[string]bool{}
	claim := regexp.MustCompile(`(?m)^\| ([TN]\d+) \| ([^|]{10,}) \| ([^|]{10,}) \| ([^|]{10,}) \|$`)
	for _, row := range claim.FindAllStringSubmatch(claims, -1) {
		assert.Contains(t, tests, row[1])
		assert.False(t, numbers[row[1]], "%s appears twice", row[1])
		numbers[row[1]] = true
	}
	assert.Len(t, numbers, strings.Count(claims, "\n| T")+strings.Count(claims, "\n| N"), "every row has its four cells")
	assert.Len(t, tests, len(numbers))
	for n := 1; n <= 25; n++ {
		assert.Contains(t, numbers, fmt.Sprintf("T%d", n))
	}
}

// The users' pages and the developers' pages each have an index.
func TestEveryPageIsInTheIndex(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for name := range all {
		if dir, base := path.Split(name); (dir == "docs/" || dir == "docs/dev/") && base != "README.md" {
			assert.Regexp(t, `(?m)^(\| |- )\[`+regexp.QuoteMeta(base)+`\]\(`+regexp.QuoteMeta(base)+`\)(:| \|) .{10,}$`, all[dir+"README.md"])
		}
	}
}

// The status examples on pages match the program's output, which a test of cmd compares with these files.
func TestThePagesShowThePrintedStatus(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for page, shown := range map[string]string{"README.md": "staged", "docs/rollback.md": "failed"} {
		printed, err := os.ReadFile(filepath.Join(root, "internal/face/statuspage/testdata", shown+".txt"))
		require.NoError(t, err)
		_, rest, found := strings.Cut(all[page], "    $ image-update-agent status\n")
		require.True(t, found, page)
		rest, _, _ = strings.Cut(rest, "\n\n    $ ")
		rest, _, _ = strings.Cut(rest, "\n\n1. ")
		assert.Contains(t, string(printed), strings.ReplaceAll(rest[4:], "\n    ", "\n"), page)
	}
}

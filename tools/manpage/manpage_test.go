// SPDX-License-Identifier: Apache-2.0

package manpage

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// insert returns the replacement of <!-- x -->.
func insert(text string) map[string]func() (string, error) {
	return map[string]func() (string, error){"x": func() (string, error) { return text, nil }}
}

func TestPage(t *testing.T) {
	t.Parallel()
	page, err := Page("# a-b(8)\n\n## Name\n\na-b - it's\n\n## Options\n\n`-f` *X*\n:   what\n\n<!-- x -->\n\n- one\n", "1.0",
		insert("### v [A]\n\n    a --b 'c'\n      .d \\\n"))
	require.NoError(t, err)
	assert.Equal(t, `.TH "A\-B" "8" "" "a\-b 1.0" ""
.nh
.ad l
.SH NAME
a\-b \- it\(aqs

.SH OPTIONS
.TP
\fB\-f\fR \fIX\fP
what

.SS v [A]
.in +4n
.EX
a \-\-b \(aqc\(aq
  .d \\
.EE
.in
.nh

.IP \(bu 2
one
`, string(page))
}

func TestTables(t *testing.T) {
	t.Parallel()
	const metrics = "# HELP a_total Why.\n# TYPE a_total counter\na_total{x=\"1\",le=\"2\"} 0\n"
	page := "# a(8)\n\n<!-- metrics, by make tables -->\nold\n<!-- end of metrics -->\n"
	page, err := WithTables(page, metrics)
	require.NoError(t, err)
	assert.Equal(t, "# a(8)\n\n<!-- metrics, by make tables -->\n\n`a_total` (counter, x)\n:   Why.\n\n<!-- end of metrics -->\n", page)
	again, err := WithTables(page, metrics)
	require.NoError(t, err)
	assert.Equal(t, page, again)
	roff, err := Page(page, "1", nil)
	require.NoError(t, err)
	assert.Contains(t, string(roff), ".TP\n\\fBa_total\\fR (counter, x)\nWhy.\n")
	assert.NotContains(t, string(roff), "make tables")

	for _, bad := range []string{
		"no table\n",
		"<!-- none, by make tables -->\n<!-- end of none -->\n",
		"<!-- states, by make tables -->\n<!-- end of holds -->\n",
	} {
		_, err := WithTables(bad, metrics)
		require.Error(t, err, bad)
	}
}

func TestPagesThatCannotBeMade(t *testing.T) {
	t.Parallel()
	_, err := Page("text\n", "1", nil)
	require.ErrorContains(t, err, "want # name(section)")
	_, err = Page("# a(8)\n<!-- y -->\n", "1", insert(""))
	require.ErrorContains(t, err, "<!-- y -->: nothing is called y")
	broken := errors.New("broken")
	_, err = Page("# a(8)\n<!-- x -->\n", "1", map[string]func() (string, error){"x": func() (string, error) { return "", broken }})
	require.ErrorIs(t, err, broken)
}

// Plain text contains no markup except code, and no character is lost.
func TestPlainTextStaysAsItIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a*b* _c_ __TAG__ [d](e) <f> &amp; g|h #": "a*b* _c_ __TAG__ [d](e) <f> &amp; g|h #",
		"# a":                  "# a",
		"- a\n- b":             `\- a \- b`,
		"1. a":                 "1. a",
		": a":                  ": a",
		"*.pem of `a_b* [c]`.": `*.pem of \fBa_b* [c]\fR.`,
		`a\b`:                  `a\\b`,
	} {
		page, err := Page("# a(8)\n\n<!-- x -->\n", "1", insert(paragraphs(text, "")))
		require.NoError(t, err)
		assert.Contains(t, strings.ReplaceAll(string(page), `\&`, ""), "\n.ad l\n"+want+"\n", text)
	}
}

// help returns the help of a program with two verbs.
func help(path ...string) (string, error) {
	switch strings.Join(path, " ") {
	case "":
		return "It is.\n\nUsage:\n  p [flags]\n  p [command]\n\nAvailable Commands:\n  completion  x\n  help        x\n  v           x\n\n" +
			"Flags:\n      --version   x\n\nUse \"p [command] --help\" for more.\n", nil
	case "v":
		return "v is.\n\nUsage:\n  p v [A...] [flags]\n  p v [command]\n\nExamples:\n  p v 1\n    2\n\nAvailable Commands:\n  w   x\n\n" +
			"Flags:\n  -h, --help            help for v\n  -o, --output string   what (default \"text\")\n\n" +
			"Global Flags:\n      --root string   x\n\nUse \"p v [command] --help\" for more.\n", nil
	case "v w":
		return "Do w\n\nUsage:\n  p v w\n", nil
	case "completion":
		return "Complete.\n\nUsage:\n  p completion\n\nAvailable Commands:\n  bash   x\n", nil
	default:
		return "", errors.New("no such verb")
	}
}

func TestVerbs(t *testing.T) {
	t.Parallel()
	text, err := Verbs(help)
	require.NoError(t, err)
	assert.Equal(t, "### completion\n\nComplete.\n\n### v \\[A...\\]\n\nv is.\n\n`-o, --output` *string*\n:   what (default \"text\")\n\n"+
		"Examples:\n\n    p v 1\n      2\n\n### v w\n\nDo w.\n\n", text)
	_, err = Verbs(func(...string) (string, error) { return "nothing", nil })
	require.ErrorContains(t, err, "names no verbs")
	_, err = Verbs(help, "x")
	require.ErrorContains(t, err, "no such verb")
}

func TestSettings(t *testing.T) {
	t.Parallel()
	text, err := Settings(`# For who reads
# the file.

# The time.
#interval: 12h

# A group.
#disk:
# What stays: a list of
#   one   first
#
# or nothing.
#  reserve: 1GiB
# Some.
#  dirs: []

# Keys.
#keys:
#  - /a
#  - /b
`)
	require.NoError(t, err)
	assert.Equal(t, "`interval: 12h`\n:   The time.\n\n`disk`\n:   A group.\n\n"+
		"`disk.reserve: 1GiB`\n:   What stays: a list of\n\n        one   first\n\n    or nothing.\n\n"+
		"`disk.dirs: []`\n:   Some.\n\n`keys`\n:   Keys.\n\n        - /a\n        - /b\n\n", text)
}

func TestSettingsThatAreNoSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ config, want string }{
		"none":                   {"# nothing\n", "there are none"},
		"in force":               {"interval: 1h\n", "line 1"},
		"without comment":        {"#a: 1\n", "line 1: a: no comment"},
		"comment of another":     {"# c\n#a: 1\n#b: 1\n", "line 3: b: no comment"},
		"comment apart":          {"# c\n\n#a: 1\n", "line 3: a: no comment"},
		"nested in nothing":      {"# c\n#a: 1\n# d\n#  b: 1\n", "line 4: b: below no other key"},
		"element of nothing":     {"# c\n#  - x\n", "line 2"},
		"element of the comment": {"# c\n#a:\n# d\n#  - x\n", "line 4"},
		"no key":                 {"# c\n#a\n", "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Settings(c.config)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Text never becomes a request or an escape of roff: go-md2man escapes a leading dot and backslashes.
func FuzzText(f *testing.F) {
	f.Add("a `.b` *c* [.d](e)\n.f\n'g \\h\n\n  .i\n\n  'j")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<12 {
			return // blackfriday is slow for long random input
		}
		page, err := Page("# a(8)\n\n<!-- x -->\n", "1", insert(paragraphs(text, "")))
		require.NoError(t, err)
		checkRoff(t, string(page))
	})
}

func FuzzSettings(f *testing.F) {
	f.Add("# c\n#a: 1\n# d\n#g:\n# e\n#  b: .2\n#  - x\n")
	f.Fuzz(func(t *testing.T, config string) {
		text, err := Settings(config)
		if err != nil {
			return
		}
		page, err := Page("# a(8)\n\n<!-- x -->\n", "1", insert(text))
		require.NoError(t, err)
		checkRoff(t, string(page))
	})
}

func checkRoff(t *testing.T, roff string) {
	t.Helper()
	examples := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(roff, "\n"), "\n") {
		request, _, _ := strings.Cut(line, " ")
		switch request {
		case ".EX":
			examples++
		case ".EE":
			examples--
		case ".TH", ".SH", ".SS", ".PP", ".TP", ".IP", ".RS", ".RE", ".nh", ".ad", ".in":
		default:
			assert.NotRegexp(t, `^[.']`, line)
			assert.NotRegexp(t, `\\([^-&f(]|$)`, strings.ReplaceAll(line, `\\`, ""))
		}
	}
	assert.Zero(t, examples)
}

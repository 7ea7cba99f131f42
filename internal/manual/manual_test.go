// SPDX-License-Identifier: Apache-2.0

package manual

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const head = `.TH "A\-B" "8" "" "a\-b 1.0" ""` + "\n.nh\n.ad l\n"

func TestMarkdown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ markdown, roff string }{
		"section":                 {"## See also\n### Of *x*", ".SH \"SEE ALSO\"\n.SS \"Of *x*\"\n"},
		"paragraphs":              {"one\ntwo\n\nthree", ".PP\none\ntwo\n.PP\nthree\n"},
		"fonts":                   {"`a` **b** *c d* [e](f.md) *, *.pem a*b*", ".PP\n\\fBa\\fR \\fBb\\fR \\fIc d\\fR e *, *.pem a\\fIb\\fR\n"},
		"example":                 {"    a\n      b\n\n    c", ".PP\n.RS 4\n.nf\na\n  b\n\nc\n.fi\n.RE\n"},
		"list":                    {"- one\n  more\n- two", ".IP \\(bu 2\none\nmore\n.IP \\(bu 2\ntwo\n"},
		"list below text":         {"text:\n- one", ".PP\ntext:\n.IP \\(bu 2\none\n"},
		"term":                    {"`-f` *X*\n:   what\n    more\n\ntext", ".TP\n\\fB\\-f\\fR \\fIX\\fR\nwhat\nmore\n.PP\ntext\n"},
		"not a request":           {".TH\n'br\na `b`\n.c", ".PP\n\\&.TH\n\\(aqbr\na \\fBb\\fR\n\\&.c\n"},
		"a request in an example": {"    .so /etc/passwd\n    'so x", ".PP\n.RS 4\n.nf\n\\&.so /etc/passwd\n\\(aqso x\n.fi\n.RE\n"},
		"a request in code":       {"`.TH`", ".PP\n\\fB.TH\\fR\n"},
		"not an escape":           {`a\fBb "q" ^~`, ".PP\na\\efBb \"q\" \\(ha\\(ti\n"},
		"quotes of a section":     {`## "a" \b`, ".SH \"\\(dqA\\(dq \\eB\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p Page
			require.NoError(t, p.Markdown("# a-b(8)\n\n"+c.markdown+"\n", "1.0", nil))
			assert.Equal(t, head+c.roff, string(p.Bytes()))
		})
	}
}

func TestInserts(t *testing.T) {
	t.Parallel()
	insert := func(p *Page) error {
		p.Term("`k`", "what\n\n  an example\n\nmore")
		return nil
	}
	var p Page
	require.NoError(t, p.Markdown("# a-b(8)\n<!-- x -->\nend", "1.0", map[string]func(*Page) error{"x": insert}))
	assert.Equal(t, head+".TP\n\\fBk\\fR\nwhat\n.PP\n.RS 9\n.nf\nan example\n.fi\n.RE\n.IP\nmore\n.PP\nend\n", string(p.Bytes()))

	broken := errors.New("broken")
	err := p.Markdown("# a(8)\n<!-- x -->", "1", map[string]func(*Page) error{"x": func(*Page) error { return broken }})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, p.Markdown("# a(8)\n<!-- y -->", "1", map[string]func(*Page) error{"x": insert}),
		"line 2: <!-- y -->: nothing is called y")
	require.ErrorContains(t, p.Markdown("# a(8)\n", "1", map[string]func(*Page) error{"x": insert}), "0 of 1 inserts")
}

// What would be printed as it is, or lost.
func TestUnknownMarkdown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ markdown, want string }{
		"empty":           {"", `line 1: "": want # name(section)`},
		"no title":        {"text", "line 1"},
		"a table":         {"# a(8)\n\n| a |\n", "line 3"},
		"a table in text": {"# a(8)\n\ntext\n| a |\n", "line 4"},
		"numbers":         {"# a(8)\n1. x\n", "line 2"},
		"other bullets":   {"# a(8)\n* x\n", "line 2"},
		"deep heading":    {"# a(8)\n#### x\n", "line 2"},
		"second title":    {"# a(8)\n# b(8)\n", "line 2"},
		"fence":           {"# a(8)\n```\nx\n```\n", "line 2"},
		"quote":           {"# a(8)\n> x\n", "line 2"},
		"html":            {"# a(8)\n<b>\n", "line 2"},
		"two blanks":      {"# a(8)\n  x\n", "line 2"},
		"lost definition": {"# a(8)\n\n:   x\n", "line 3"},
		"setext heading":  {"# a(8)\nx\n===\n", "line 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p Page
			require.ErrorContains(t, p.Markdown(c.markdown, "1", nil), c.want)
		})
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	var p Page
	require.NoError(t, p.Settings(`# For who reads
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
`))
	assert.Equal(t, `.TP
\fBinterval: 12h\fR
The time.
.TP
\fBdisk\fR
A group.
.TP
\fBdisk.reserve: 1GiB\fR
What stays: a list of
.PP
.RS 9
.nf
one   first
.fi
.RE
.IP
or nothing.
.TP
\fBdisk.dirs: []\fR
Some.
.TP
\fBkeys\fR
Keys.
.PP
.RS 9
.nf
\- /a
\- /b
.fi
.RE
`, string(p.Bytes()))
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
			var p Page
			require.ErrorContains(t, p.Settings(c.config), c.want)
		})
	}
}

// Text never becomes a request or an escape of roff: what begins with a dot or a backslash is this package's own.
func FuzzMarkdown(f *testing.F) {
	f.Add("## A\n\n`b`\n:   c\n\n- d\n\n    .e\n")
	f.Add("a `.b` *c* [.d](e)\n.f\n'g \\h")
	f.Fuzz(func(t *testing.T, text string) {
		var p Page
		if p.Markdown("# a(8)\n"+text, "1", nil) != nil {
			return
		}
		checkRoff(t, string(p.Bytes()))
	})
}

func FuzzSettings(f *testing.F) {
	f.Add("# c\n#a: 1\n# d\n#g:\n# e\n#  b: .2\n#  - x\n")
	f.Fuzz(func(t *testing.T, config string) {
		var p Page
		if p.Settings(config) != nil {
			return
		}
		checkRoff(t, string(p.Bytes()))
	})
}

func checkRoff(t *testing.T, roff string) {
	t.Helper()
	examples := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(roff, "\n"), "\n") {
		request, _, _ := strings.Cut(line, " ")
		switch request {
		case ".nf":
			examples++
		case ".fi":
			examples--
		case ".TH", ".SH", ".SS", ".PP", ".TP", ".IP", ".RS", ".RE", ".nh", ".ad":
		default:
			assert.NotRegexp(t, `^[.']`, line)
			assert.NotRegexp(t, `\\([^-e&f(]|$)`, line)
		}
	}
	assert.Zero(t, examples)
}

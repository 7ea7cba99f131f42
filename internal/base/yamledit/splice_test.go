// SPDX-License-Identifier: Apache-2.0

package yamledit_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

func parse(tb testing.TB, data string) *yamledit.File {
	tb.Helper()
	f, err := yamledit.Parse([]byte(data))
	require.NoError(tb, err)
	return f
}

func TestSplice(t *testing.T) {
	t.Parallel()
	const data = "0123456789"
	for name, tc := range map[string]struct {
		edits []yamledit.Edit
		want  string
	}{
		"none":                   {nil, data},
		"replace":                {[]yamledit.Edit{{2, 4, "x"}}, "01x456789"},
		"out of order":           {[]yamledit.Edit{{8, 9, "y"}, {0, 1, "x"}}, "x1234567y9"},
		"touching":               {[]yamledit.Edit{{2, 4, "x"}, {4, 6, "y"}}, "01xy6789"},
		"insertions at one spot": {[]yamledit.Edit{{5, 5, "x"}, {5, 5, "y"}}, "01234xy56789"},
		"both ends":              {[]yamledit.Edit{{10, 10, "y"}, {0, 0, "x"}}, "x0123456789y"},
		"delete all":             {[]yamledit.Edit{{0, 10, ""}}, ""},
	} {
		got, err := parse(t, data).Splice(tc.edits...)
		require.NoError(t, err, name)
		assert.Equal(t, tc.want, string(got), name)
	}
}

func TestSpliceRejects(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]yamledit.Edit{
		"overlap":            {{2, 5, "x"}, {4, 6, "y"}},
		"insertion inside":   {{2, 5, "x"}, {3, 3, "y"}},
		"backwards":          {{5, 2, "x"}},
		"behind the end":     {{5, 11, "x"}},
		"in front of it all": {{-1, 2, "x"}},
	} {
		_, err := parse(t, "0123456789").Splice(edits...)
		assert.ErrorContains(t, err, "overlaps another, or lies outside the file", name)
	}
}

func TestSpliceDoesNotTouchTheInput(t *testing.T) {
	t.Parallel()
	data := []byte("a: 1\n")
	f, err := yamledit.Parse(data)
	require.NoError(t, err)
	out, err := f.Splice()
	require.NoError(t, err)
	out[0] = 'x'
	assert.Equal(t, "a: 1\n", string(data))
}

func TestLineEnding(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"": "\n", "a: 1": "\n", "a: 1\n": "\n", "a: 1\r\nb: 2\n": "\r\n", "a: 1\nb: 2\r\n": "\n", "a: 1\r": "\r", "\r\n": "\r\n",
	} {
		assert.Equal(t, want, parse(t, data).LineEnding(), "%q", data)
	}
}

func TestInsertLine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		data   string
		offset int
		want   string
	}{
		"first line":                      {"a: 1\nb: 2\n", 0, "a: 1\nx\nb: 2\n"},
		"offset at the break":             {"a: 1\nb: 2\n", 4, "a: 1\nx\nb: 2\n"},
		"last line":                       {"a: 1\nb: 2\n", 5, "a: 1\nb: 2\nx\n"},
		"no final newline":                {"a: 1\nb: 2", 9, "a: 1\nb: 2\nx"},
		"no final newline, crlf":          {"a: 1\r\nb: 2", 8, "a: 1\r\nb: 2\r\nx"},
		"one line without newline":        {"a: 1", 1, "a: 1\nx"},
		"crlf":                            {"a: 1\r\nb: 2\r\n", 1, "a: 1\r\nx\r\nb: 2\r\n"},
		"the line's own break, not first": {"a: 1\nb: 2\r\nc: 3\n", 6, "a: 1\nb: 2\r\nx\r\nc: 3\n"},
		"byte order mark":                 {"\uFEFFa: 1\n", 0, "\uFEFFa: 1\nx\n"},
	} {
		f := parse(t, tc.data)
		got, err := f.Splice(f.InsertLine(tc.offset, "x"))
		require.NoError(t, err, name)
		assert.Equal(t, tc.want, string(got), name)
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	const base = "a: &x 1 # one\nb: [*x, 'c']\n"
	for other, want := range map[string]bool{
		"a:   &x 1\n\n# two\nb: [*x,   'c']\n": true,
		"a: &x 2\nb: [*x, 'c']\n":              false,
		"a: &y 1\nb: [*y, 'c']\n":              false,
		"a: &x 1\nb: [1, 'c']\n":               false,
		"a: &x 1\nb: [*x, c]\n":                false,
		"a: &x 1\nb: [*x, 'c', d]\n":           false,
		"a: &x 1\nb: {*x : 'c'}\n":             false,
		"a: &x !!str 1\nb: [*x, 'c']\n":        false,
		"a: &x !!int 1\nb: [*x, 'c']\n":        false,
		"a: 1\nb: [&x 1, 'c']\n":               false,
	} {
		assert.Equal(t, want, yamledit.Same(parse(t, base).Documents[0], parse(t, other).Documents[0], nil), other)
	}
}

// These have equal values.
func TestSameComparesTagsAndAnchors(t *testing.T) {
	t.Parallel()
	for a, b := range map[string]string{"[&x 1]": "[&y 1]", "[!a 1]": "[!b 1]"} {
		assert.False(t, yamledit.Same(parse(t, a).Documents[0], parse(t, b).Documents[0], nil), "%s %s", a, b)
	}
}

func TestKeyIndent(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"v: 1":                "",
		"\uFEFFv: 1":          "",
		"a:\n   v: 1":         "   ",
		"- v: 1":              "  ",
		"- - -  v: 1":         "       ",
		"- &x v: 1":           "  ",
		"- a: 1\n  'v': 1":    "  ",
		"- ? v\n  : 1":        "  ",
		"a:\n- \n    ?   v\n": "    ",
	} {
		f := parse(t, data)
		assert.Equal(t, want, f.KeyIndent(keyV(f.Documents[0])), "%q", data)
	}
}

// keyV returns the key node named v.
func keyV(n *yaml.Node) *yaml.Node {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.Value == "v" {
			return c
		}
		if hit := keyV(c); hit != nil {
			return hit
		}
	}
	return nil
}

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

// find returns the value of the mapping key v.
func find(tb testing.TB, f *yamledit.File) *yaml.Node {
	tb.Helper()
	var walk func(n *yaml.Node) *yaml.Node
	walk = func(n *yaml.Node) *yaml.Node {
		for i, c := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "v" {
				return c
			}
			if hit := walk(c); hit != nil {
				return hit
			}
		}
		return nil
	}
	for _, doc := range f.Documents {
		if n := walk(doc); n != nil {
			return n
		}
	}
	require.FailNow(tb, "no key v")
	return nil
}

var scalarsAsWritten = map[string]struct{ data, token, replaced string }{
	"plain":                          {"v: old", "old", "v: new"},
	"plain, spaces and comment":      {"v:   old  # old\n", "old", "v:   new  # old\n"},
	"plain, tabs":                    {"v:\told\t# old\n", "old", "v:\tnew\t# old\n"},
	"plain, inner hash":              {"v: old#1\n", "old#1", "v: new\n"},
	"plain on the next line":         {"v:\n  old\n", "old", "v:\n  new\n"},
	"crlf":                           {"a: 1\r\nv: old\r\nb: 2\r\n", "old", "a: 1\r\nv: new\r\nb: 2\r\n"},
	"lone carriage return":           {"a: 1\rv: old\r", "old", "a: 1\rv: new\r"},
	"next line character":            {"a: 1\u0085v: old\n", "old", "a: 1\u0085v: new\n"},
	"line separator in comment":      {"a: 1 # x\u2028v: old\n", "old", "a: 1 # x\u2028v: new\n"},
	"byte order mark":                {"\uFEFFv: old\n", "old", "\uFEFFv: new\n"},
	"byte order mark, second line":   {"\uFEFFa: 1\nv: old\n", "old", "\uFEFFa: 1\nv: new\n"},
	"multi-byte in front":            {"{\"größe 😀\": 1, v: old}\n", "old", "{\"größe 😀\": 1, v: new}\n"},
	"multi-byte value":               {"v: grün # é\n", "grün", "v: new # é\n"},
	"single quotes":                  {"v: 'old'\n", "'old'", "v: 'new'\n"},
	"single quotes, doubled":         {"v: 'it''s' # '\n", "'it''s'", "v: 'new' # '\n"},
	"double quotes":                  {"v: \"old\"# no comment\n", "\"old\"", "v: \"new\"# no comment\n"},
	"double quotes, escapes":         {`v: "a\"b\\" # "`, `"a\"b\\"`, `v: "new" # "`},
	"double quotes, json":            {`{"v": "a\tb\u003a1"}`, `"a\tb\u003a1"`, `{"v": "new"}`},
	"double quotes, unicode":         {`v: "\u00e9\x41"`, `"\u00e9\x41"`, `v: "new"`},
	"double quotes over lines":       {"v: \"a\n   b\\\n   c\"\nw: 1\n", "\"a\n   b\\\n   c\"", "v: \"new\"\nw: 1\n"},
	"single quotes over lines, crlf": {"v: 'a\r\n\r\n   b'\r\n", "'a\r\n\r\n   b'", "v: 'new'\r\n"},
	"empty quotes":                   {"v: ''\n", "''", "v: 'new'\n"},
	"flow":                           {"[{a: 1,v: old},2]", "old", "[{a: 1,v: new},2]"},
	"flow, adjacent":                 {"{\"v\":old}", "old", "{\"v\":new}"},
	"anchor":                         {"v: &x old\n", "old", "v: &x new\n"},
	"tag":                            {"v: !!str old\n", "old", "v: !!str new\n"},
	"plain tag":                      {"v: ! old\n", "old", "v: ! new\n"},
	"verbatim tag":                   {"v: !<tag:yaml.org,2002:str> 'old'\n", "'old'", "v: !<tag:yaml.org,2002:str> 'new'\n"},
	"anchor and tag over lines":      {"v: &x # c &\n  !!str\n  \"old\"\n", "\"old\"", "v: &x # c &\n  !!str\n  \"new\"\n"},
	"behind a block scalar":          {"a: |\n  v: old\n\n  b\nv: old\n", "old", "a: |\n  v: old\n\n  b\nv: new\n"},
	"second document":                {"a: old\n---\nv: old\n", "old", "a: old\n---\nv: new\n"},
	"list head":                      {"- v: old\n  w: 1\n", "old", "- v: new\n  w: 1\n"},
}

func TestScalarAndReplace(t *testing.T) {
	t.Parallel()
	for name, tc := range scalarsAsWritten {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := yamledit.Parse([]byte(tc.data))
			require.NoError(t, err)
			n := find(t, f)
			start, end, err := f.Scalar(n)
			require.NoError(t, err)
			assert.Equal(t, tc.token, tc.data[start:end])
			edit, err := f.Replace(n, "new")
			require.NoError(t, err)
			got, err := f.Splice(edit)
			require.NoError(t, err)
			assert.Equal(t, tc.replaced, string(got))
			after, err := yamledit.Parse(got)
			require.NoError(t, err)
			assert.Equal(t, "new", find(t, after).Value)
		})
	}
}

var scalarsWithoutRange = map[string]struct{ data, want string }{
	"empty":              {"v:\n", "line 1: an empty value"},
	"empty with anchor":  {"v: &x\nw: *x\n", "line 1: an empty value"},
	"literal":            {"v: |\n  old\n", "line 1: a block scalar"},
	"folded":             {"v: >-\n  old\n", "line 1: a block scalar"},
	"plain over lines":   {"v: a\n  b\n", "line 1: a plain scalar over several lines"},
	"mapping":            {"v: {}\n", "line 1: not a scalar"},
	"sequence, line two": {"a: 1\nv:\n- 1\n", "line 3: not a scalar"},
}

func TestScalarWithoutRange(t *testing.T) {
	t.Parallel()
	for name, tc := range scalarsWithoutRange {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := yamledit.Parse([]byte(tc.data))
			require.NoError(t, err)
			_, _, err = f.Scalar(find(t, f))
			require.EqualError(t, err, tc.want)
			_, err = f.Replace(find(t, f), "new")
			require.EqualError(t, err, tc.want)
		})
	}
}

func TestScalarOfAnAlias(t *testing.T) {
	t.Parallel()
	data := "a: &x-1 1\nv: *x-1 # *x\n"
	f, err := yamledit.Parse([]byte(data))
	require.NoError(t, err)
	start, end, err := f.Scalar(find(t, f))
	require.NoError(t, err)
	assert.Equal(t, "*x-1", data[start:end])
	_, err = f.Replace(find(t, f), "new")
	require.EqualError(t, err, "line 2: an alias")
}

func TestScalarOfAForeignNode(t *testing.T) {
	t.Parallel()
	f, err := yamledit.Parse([]byte("a: 'x'\n"))
	require.NoError(t, err)
	for name, n := range map[string]yaml.Node{
		"no place":     {Kind: yaml.ScalarNode, Value: "x"},
		"line":         {Kind: yaml.ScalarNode, Value: "x", Line: 3, Column: 1},
		"column":       {Kind: yaml.ScalarNode, Value: "x", Line: 2, Column: 2},
		"other text":   {Kind: yaml.ScalarNode, Value: "x", Line: 1, Column: 1},
		"other quotes": {Kind: yaml.ScalarNode, Value: "x", Line: 1, Column: 4, Style: yaml.DoubleQuotedStyle},
		"other value":  {Kind: yaml.ScalarNode, Value: "y", Line: 1, Column: 4, Style: yaml.SingleQuotedStyle},
		"not a quote":  {Kind: yaml.ScalarNode, Value: "x", Line: 1, Column: 1, Style: yaml.SingleQuotedStyle},
	} {
		_, _, err := f.Scalar(&n)
		assert.Error(t, err, name)
	}
}

var valuesToWrite = map[string]struct{ data, value, want, problem string }{
	"quote into single":       {"v: 'a'", "it's", "v: 'it''s'", ""},
	"quote into double":       {`v: "a"`, `a"\b`, `v: "a\"\\b"`, ""},
	"colon at the end, plain": {"v: a", "b:", "", `line 1: value "b:": needs quotes, and there are none to keep`},
	"colon at the end, quote": {"v: 'a'", "b:", "v: 'b:'", ""},
	"space, plain":            {"v: a", "b #c", "", `line 1: value "b #c": needs quotes, and there are none to keep`},
	"comma in flow":           {"{v: a}", "b,c", "", `line 1: value "b,c": needs quotes, and there are none to keep`},
	"indicator":               {"v: a", "*b", "", `line 1: value "*b": needs quotes, and there are none to keep`},
	"empty, plain":            {"v: a", "", "", `line 1: value "": needs quotes, and there are none to keep`},
	"empty, quoted":           {"v: 'a'", "", "v: ''", ""},
	"line break":              {"v: 'a'", "b\nc", "", `line 1: value "b\nc": control character or line break`},
	"control character":       {"v: 'a'", "\x1b", "", `line 1: value "\x1b": control character or line break`},
	"reference":               {"v: a", "r.example:5000/a_b/c-d:1.0@sha256:00", "v: r.example:5000/a_b/c-d:1.0@sha256:00", ""},
}

func TestReplaceKeepsTheQuoting(t *testing.T) {
	t.Parallel()
	for name, tc := range valuesToWrite {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := yamledit.Parse([]byte(tc.data))
			require.NoError(t, err)
			edit, err := f.Replace(find(t, f), tc.value)
			if tc.problem != "" {
				require.EqualError(t, err, tc.problem)
				return
			}
			require.NoError(t, err)
			got, err := f.Splice(edit)
			require.NoError(t, err)
			assert.Equal(t, tc.want, string(got))
			after, err := yamledit.Parse(got)
			require.NoError(t, err)
			assert.Equal(t, tc.value, find(t, after).Value)
		})
	}
}

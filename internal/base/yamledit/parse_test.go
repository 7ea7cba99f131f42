// SPDX-License-Identifier: Apache-2.0

package yamledit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

var refusedFiles = map[string]struct{ data, want string }{
	"utf-16 big endian":           {"\xFE\xFF\x00a", "line 1: encoded as UTF-16; save the file as UTF-8"},
	"utf-16 little endian":        {"\xFF\xFEa\x00", "line 1: encoded as UTF-16; save the file as UTF-8"},
	"latin-1":                     {"a: 1\nb: f\xFCr\n", "line 2: byte 0xfc is not valid UTF-8"},
	"cut utf-8":                   {"a: \xE2\x82", "line 1: byte 0xe2 is not valid UTF-8"},
	"nul":                         {"a: 1\n\nb: \x00", "line 3: control character U+0000"},
	"escape":                      {"a: \x1b[31m", "line 1: control character U+001B"},
	"c1 control":                  {"a: \u0090", "line 1: control character U+0090"},
	"tab as indentation":          {"a:\n\tb: 1\n", "line 2: found character that cannot start any token"},
	"unclosed quote":              {"a: 1\nb: \"x\n", "line 2: found unexpected end of stream"},
	"first line":                  {"{a", "line 1: did not find expected ',' or '}'"},
	"json's escaped slash":        {`{"a": "b\/c"}`, "line 1: found unknown escape character"}, // yaml.v3 does not support it
	"indentation":                 {"a:\n  b: 1\n c: 2\n", "line 3: did not find expected key"},
	"indentation below":           {"x: 1\na:\n  b: 1\n c: 2\n", "line 4: did not find expected key"},
	"indentation below a comment": {"# c\na:\n  b: 1\n c: 2\nd: 3\n", "line 4: did not find expected key"},
	"indentation of an item":      {"a:\n  b:\n  - c: 1\n    d: [2]\n   - c: 3\n    d: 4\n", "line 5: did not find expected key"},
	"indentation, cr":             {"# c\r\na:\r\n  b: 1\r\n c: 2\r\n", "line 4: did not find expected key"},
	"second file's indentation":   {"a: 1\n---\n# c\na:\n  b: 1\n c: 2\n", "line 6: did not find expected key"},
	"text behind a quote":         {"a:\n  b: 1\n  c: 2\n  d: 'x' y\n", "line 4: did not find expected key"},
	"text behind a bracket":       {"# c\na: 1\nb: {x: 1} y\n", "line 3: did not find expected key"},
	"key beside an item":          {"# c\na:\n  - b: 1\n  - c: 2\n  d: 3\n", "line 5: did not find expected '-' indicator"},
	"behind an anchor":            {"a: &a 1\nb:\n  c: *a\n  d: 'x' y\n", "line 3: did not find expected key"}, // of the block
	"item beside a key":           {"x: 1\na: 1\n- b\n", "line 3: did not find expected key"},
	"stray bracket":               {"x: 1\ny: ]\n", "line 2: did not find expected node content"},
	"stray bracket, cr":           {"x: 1\r\ny: ]\r\nz: 1\r\n", "line 2: did not find expected node content"},
	"unclosed bracket":            {"x: 1\ny: [a\nz: 1\n", "line 2: did not find expected ',' or ']'"},
	"unclosed bracket at end":     {"x: 1\ny: [\n", "line 2: did not find expected node content"},
	"undefined tag":               {"x: 1\ny: !u!x z\n", "line 2: found undefined tag handle"},
	"old YAML":                    {"%YAML 3.0\n---\nx: 1\n", "line 1: found incompatible YAML document"},
	"percent":                     {"x: 1\n%a\n", "line 2: found unknown directive name"},
	"unknown alias":               {"a: *b\n", "line 1: an alias without its anchor: put a text that begins with * in quotes"},
	"unknown alias below":         {"x: 1\ny: 2*b\nz: [*b]\n", "line 3: an alias without its anchor: put a text that begins with * in quotes"},
	"duplicate key":               {"a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", `line 5: duplicate key "c", first on line 3`},
	"duplicate key, quoted":       {"a: 1\n'a': 2\n", `line 2: duplicate key "a", first on line 1`},
	"duplicate key, flow":         {"{a: 1, b: 2, a: 3}", `line 1: duplicate key "a", first on line 1`},
	"duplicate key, second file":  {"a: 1\n---\nb: 1\nb: 2\n", `line 4: duplicate key "b", first on line 3`},
	"duplicate key, alias":        {"&k a: 1\n*k : 2\n", `line 2: duplicate key "a", first on line 1`},
	"duplicate merge key":         {"x: &x {a: 1}\ny:\n  <<: *x\n  <<: *x\n", `line 4: duplicate key "<<", first on line 3`},
	"mapping as key":              {"? {a: 1}\n: b\n", "line 1: a key that is not a scalar"},
	"merge of a scalar":           {"a:\n  <<: 1\n", "line 2: merge key: the value is neither a mapping nor a list of mappings"},
	"merge of a list of scalars":  {"a:\n  <<: [1]\n", "line 2: merge key: the value is neither a mapping nor a list of mappings"},
	"merge behind the same key":   {"x: &x {a: 1}\ny:\n  a: 2\n  <<: *x\n", `line 3: key "a" comes before a merge key that also has it; parsers disagree which counts`},
	"alias inside its anchor":     {"a: &a\n  b: [*a]\n", "line 2: alias *a lies inside its own anchor"},
	"block nesting":               {nested(65), "line 64: nested deeper than 64 levels"},
	"flow nesting":                {strings.Repeat("[", 65) + strings.Repeat("]", 65), "line 1: nested deeper than 64 levels"},
	"nesting through an alias":    {"a: &a " + flow(40) + "\nb: " + strings.Replace(flow(40), "x", "*a", 1), "line 2: alias *a: nested deeper than 64 levels"},
	"billion laughs":              {laughs(), "line 6: more than 100000 nodes, aliases expanded"},
	"many nodes":                  {"a: [" + strings.Repeat("1,", 100_001) + "]", "line 1: more than 100000 nodes, aliases expanded"},
	"many documents":              {strings.Repeat("---\n", 257), "line 257: more than 256 documents"},
	"many nodes, two documents":   {strings.Repeat("--- ["+strings.Repeat("1,", 60_000)+"]\n", 2), "line 2: more than 100000 nodes"},
	"too large":                   {strings.Repeat("#", yamledit.MaxBytes+1), "1048577 bytes: larger than the limit of 1048576"},
}

// nested returns a document with a scalar at level n.
func nested(n int) string {
	var b strings.Builder
	for i := range n - 1 {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i))
	}
	return b.String() + strings.Repeat(" ", n-1) + "x"
}

func flow(n int) string { return strings.Repeat("[", n) + "x" + strings.Repeat("]", n) }

func laughs() string {
	var b strings.Builder
	b.WriteString("l0: &l0 lol\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, "l%d: &l%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*l%d,", i-1), 10), ","))
	}
	return b.String()
}

func TestParseRejects(t *testing.T) {
	t.Parallel()
	for name, tc := range refusedFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := yamledit.Parse([]byte(tc.data))
			require.EqualError(t, err, tc.want)
			assert.Nil(t, f)
		})
	}
}

var acceptedFiles = map[string]struct {
	data      string
	documents int
}{
	"empty":                     {"", 0},
	"comments only":             {"# a\n\n# b", 0},
	"byte order mark only":      {"\uFEFF", 0},
	"byte order mark":           {"\uFEFFa: 1\n", 1},
	"no final newline":          {"a: 1", 1},
	"crlf":                      {"a: 1\r\nb: 2\r\n", 1},
	"header":                    {"---\na: 1\n", 1},
	"three documents":           {"a: 1\n---\nb: 1\n---\n", 3},
	"same key in two documents": {"a: 1\n---\na: 1\n", 2},
	"tabs between tokens":       {"a:\t1\t# c\n", 1},
	"as deep as allowed":        {flow(63), 1},
	"as many nodes as allowed":  {"[" + strings.Repeat("1,", 99_999) + "]", 1},
	"alias repeated":            {"a: &a [1, 2]\nb: [*a, *a]\n", 1},
	"anchor named again":        {"a: &a 1\nb: &a 2\nc: *a\n", 1},
	"merge in front":            {"x: &x {a: 1}\ny:\n  <<: *x\n  a: 2\n", 1},
	"merge behind another key":  {"x: &x {a: 1}\ny:\n  b: 2\n  <<: [*x]\n", 1},
	"quoted merge sign":         {"x:\n  '<<': 1\n", 1},
	"next line character":       {"a: 1\u0085b: 2\u2028c: 3", 1},
	"as large as allowed":       {strings.Repeat("#", yamledit.MaxBytes), 0},
}

func TestParseAccepts(t *testing.T) {
	t.Parallel()
	for name, tc := range acceptedFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := yamledit.Parse([]byte(tc.data))
			require.NoError(t, err)
			assert.Len(t, f.Documents, tc.documents)
		})
	}
}

func TestFieldsMerge(t *testing.T) {
	t.Parallel()
	f, err := yamledit.Parse([]byte(`
first: &first {image: one, name: first}
second: &second {image: two, tty: yes}
both:
  <<: [*first, *second]
  name: own
`))
	require.NoError(t, err)
	both, ok := yamledit.Get(f.Documents[0].Content[0], "both")
	require.True(t, ok)
	var got []string
	for _, field := range yamledit.Fields(both.Value) {
		got = append(got, fmt.Sprintf("%s=%s merged=%v", field.Key.Value, field.Value.Value, field.Merged))
	}
	assert.Equal(t, []string{"name=own merged=false", "image=one merged=true", "tty=yes merged=true"}, got)
	_, ok = yamledit.Get(both.Value, "absent")
	assert.False(t, ok)
}

// FuzzParse: an accepted file keeps the limits; every returned range decodes to its node, and writing the value back
// changes no value.
func FuzzParse(f *testing.F) {
	for _, tc := range scalarsAsWritten {
		f.Add([]byte(tc.data))
	}
	for _, tc := range refusedFiles {
		if len(tc.data) < 4096 {
			f.Add([]byte(tc.data))
		}
	}
	for _, tc := range editedKeys {
		f.Add([]byte(tc.data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := yamledit.Parse(data)
		if err != nil {
			return
		}
		same, err := file.Splice()
		require.NoError(t, err)
		require.Equal(t, string(data), string(same))
		for i, doc := range file.Documents {
			checkScalars(t, file, i, doc, new(int))
		}
	})
}

// checkScalars checks the first 20 scalars of a document, each of which needs one more parse.
func checkScalars(t *testing.T, file *yamledit.File, doc int, n *yaml.Node, seen *int) {
	for _, child := range n.Content {
		checkScalars(t, file, doc, child, seen)
	}
	if *seen++; n.Kind != yaml.ScalarNode || *seen > 20 {
		return
	}
	start, end, err := file.Scalar(n)
	if err != nil {
		return
	}
	require.Less(t, start, end)
	edit, err := file.Replace(n, n.Value)
	if err != nil {
		return
	}
	out, err := file.Splice(edit)
	require.NoError(t, err)
	again, err := yamledit.Parse(out)
	require.NoError(t, err, "%q", out)
	require.True(t, yamledit.Same(file.Documents[doc], again.Documents[doc], nil), "%q", out)
}

// FuzzEditKeys: an edit either fails or keeps every other key, and it is idempotent.
func FuzzEditKeys(f *testing.F) {
	for _, tc := range editedKeys {
		f.Add([]byte(tc.data))
	}
	for _, data := range oddShapes {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := yamledit.Parse(data)
		if err != nil {
			return
		}
		edits := []yamledit.KeyEdit{{"a", ""}, {"b", "b: true\n"}, {"list", "list:\n- x: \"1\"\n"}}
		out, err := file.EditKeys(edits...)
		if err != nil {
			return
		}
		after, err := yamledit.Parse(out)
		require.NoError(t, err)
		again, err := after.EditKeys(edits...)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}

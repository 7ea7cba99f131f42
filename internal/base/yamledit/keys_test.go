// SPDX-License-Identifier: Apache-2.0

package yamledit_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

var editedKeys = map[string]struct {
	data  string
	edits []yamledit.KeyEdit
	want  string
}{
	"replace":                    {"a: 1\nb: 2 # old\nc: 3\n", []yamledit.KeyEdit{{"b", "b: 9\n"}}, "a: 1\nb: 9\nc: 3\n"},
	"replace a block":            {"a:\n- x: 1\n  # inside\n- y\n  # last\n\n# about b\nb: 2\n", []yamledit.KeyEdit{{"a", "a: []\n"}}, "a: []\n\n# about b\nb: 2\n"},
	"replace by a block":         {"a: []\nb: 2\n", []yamledit.KeyEdit{{"a", "a:\n- x: 1\n"}}, "a:\n- x: 1\nb: 2\n"},
	"delete":                     {"a: 1\nb: 2\nc: 3\n", []yamledit.KeyEdit{{"b", ""}}, "a: 1\nc: 3\n"},
	"delete the only one":        {"a: 1\n", []yamledit.KeyEdit{{"a", ""}}, ""},
	"delete what is not there":   {"a: 1\n", []yamledit.KeyEdit{{"b", ""}}, "a: 1\n"},
	"append":                     {"a: 1\n", []yamledit.KeyEdit{{"b", "b: 2\n"}, {"c", "c: 3\n"}}, "a: 1\nb: 2\nc: 3\n"},
	"append, no final newline":   {"a: 1", []yamledit.KeyEdit{{"b", "b: 2\n"}}, "a: 1\nb: 2\n"},
	"append behind a comment":    {"a: 1\n# end", []yamledit.KeyEdit{{"b", "b: 2\n"}}, "a: 1\n# end\nb: 2\n"},
	"replace last and append":    {"a: 1", []yamledit.KeyEdit{{"a", "a: 2\n"}, {"b", "b: 2\n"}}, "a: 2\nb: 2\n"},
	"into nothing":               {"", []yamledit.KeyEdit{{"a", "a: 1\n"}}, "a: 1\n"},
	"into comments":              {"# only\n", []yamledit.KeyEdit{{"a", "a: 1\n"}}, "# only\na: 1\n"},
	"into an empty document":     {"---\n", []yamledit.KeyEdit{{"a", "a: 1\n"}}, "---\na: 1\n"},
	"crlf":                       {"a: 1\r\nb: 2\r\n", []yamledit.KeyEdit{{"a", "a:\n- x\n"}, {"c", "c: 3\n"}}, "a:\r\n- x\r\nb: 2\r\nc: 3\r\n"},
	"byte order mark":            {"\uFEFFa: 1\nb: 2\n", []yamledit.KeyEdit{{"a", "a: 9\n"}}, "\uFEFFa: 9\nb: 2\n"},
	"quoted key":                 {"'a': 1\nb: 2\n", []yamledit.KeyEdit{{"a", "a: 9\n"}}, "a: 9\nb: 2\n"},
	"comment at the left margin": {"a:\n- x\n# inside\n- y\nb: 2\n", []yamledit.KeyEdit{{"a", "a: 1\n"}}, "a: 1\nb: 2\n"},
	"block scalar with hash":     {"a: |\n  x\n  # text\n\nb: 2\n", []yamledit.KeyEdit{{"a", "a: 1\n"}}, "a: 1\n\nb: 2\n"},
	"quoted text at the margin":  {"a: \"x\n# y\"\n# b\nb: 1\n", []yamledit.KeyEdit{{"a", "a: 1\n"}}, "a: 1\n# b\nb: 1\n"},
	"longer key with that head":  {"ab: 1\na: 2\n", []yamledit.KeyEdit{{"a", "a: 3\n"}}, "ab: 1\na: 3\n"},
	"key inside a value":         {"x:\n  a: 1\n", []yamledit.KeyEdit{{"a", "a: 3\n"}}, "x:\n  a: 1\na: 3\n"},
	"document end kept":          {"a: 1\n...\n", []yamledit.KeyEdit{{"a", "a: 2\n"}}, "a: 2\n...\n"},
	"nothing to do":              {"a: 1", nil, "a: 1"},
	"mixed, the first line goes": {"a: 1\r\n# b\nc: 2\n", []yamledit.KeyEdit{{"a", ""}, {"b", "b:\n- x\n"}}, "# b\nc: 2\nb:\r\n- x\r\n"},
	"mixed, said already":        {"a: 1\nb:\r\n- x\r\nc: 2", []yamledit.KeyEdit{{"b", "b:\n- x\n"}, {"c", "c: 2\n"}}, "a: 1\nb:\r\n- x\r\nc: 2"},
}

func TestEditKeys(t *testing.T) {
	t.Parallel()
	for name, tc := range editedKeys {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(t, tc.data).EditKeys(tc.edits...)
			require.NoError(t, err)
			assert.Equal(t, tc.want, string(got))
			again, err := parse(t, string(got)).EditKeys(tc.edits...)
			require.NoError(t, err)
			assert.Equal(t, string(got), string(again), "the same edits change nothing more")
		})
	}
}

var oddShapes = map[string]string{
	"flow":             "{a: 1}\n",
	"list":             "- a\n",
	"scalar":           "a\n",
	"null":             "~\n",
	"second document":  "a: 1\n---\nb: 1\n",
	"indented keys":    "  a: 1\n  b: 2\n",
	"explicit key":     "? a\n: 1\n",
	"alias as key":     "b: &x 1\n*x : 2\n",
	"merge at the top": "b: &x {c: 1}\n<<: [*x, {d: 1}]\n? e\n: 1\n",
}

func TestEditKeysRejectsOddShapes(t *testing.T) {
	t.Parallel()
	for name, data := range oddShapes {
		_, err := parse(t, data).EditKeys(yamledit.KeyEdit{Key: "z", Lines: "z: 1\n"})
		assert.ErrorIs(t, err, yamledit.ErrShape, name)
	}
}

var unprovenEdits = map[string]struct {
	data, want string
	edit       yamledit.KeyEdit
}{
	"lines of another key":   {"a: 1\n", "key a: not the lines of this one key", yamledit.KeyEdit{"a", "b: 1\n"}},
	"lines of two keys":      {"a: 1\n", "key a: not the lines of this one key", yamledit.KeyEdit{"a", "a: 1\nb: 2\n"}},
	"no newline":             {"a: 1\n", "key a: the lines do not end with a newline", yamledit.KeyEdit{"a", "a: 1"}},
	"broken lines":           {"a: 1\n", "edited file: line 1: did not find expected", yamledit.KeyEdit{"a", "a: [\n"}},
	"anchor of another":      {"a: &x 1\nb: *x\n", "edited file: line 2: an alias without its anchor: put a text that begins with * in quotes", yamledit.KeyEdit{"a", "a: 1\n"}},
	"document end":           {"a: 1\n...\n", "edited file: line 3: did not find expected <document start>", yamledit.KeyEdit{"b", "b: 1\n"}},
	"blank lines taken over": {"a: |+\n  x\nb: 1\n\nc: 2\n", `edited file: line 1: key "a" is not as intended`, yamledit.KeyEdit{"b", ""}},
	"aliased value goes":     {"a: [&x 1]\nb: *x\n", "edited file: line 1: an alias without its anchor: put a text that begins with * in quotes", yamledit.KeyEdit{"a", ""}},
}

func TestEditKeysChecksItsResult(t *testing.T) {
	t.Parallel()
	for name, tc := range unprovenEdits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := parse(t, tc.data).EditKeys(tc.edit)
			require.ErrorContains(t, err, tc.want)
			assert.Nil(t, out)
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/manifests"
)

const equalBase = podHead + "  - {name: c, image: a:1, tty: true, args: [x, 'yes', '1'], env: [{name: NAME, value: 'n'}]}\n"

var comparedPods = map[string]struct {
	other string
	want  bool
}{
	"same":             {equalBase, true},
	"comments":         {"# top\n" + equalBase + "# end\n", true},
	"crlf":             {"apiVersion: v1\r\nkind: Pod\r\nmetadata: {name: p}\r\nspec:\r\n  containers:\r\n  - {name: c, image: a:1, tty: true, args: [x, 'yes', '1'], env: [{name: NAME, value: 'n'}]}\r\n", true},
	"order and quotes": {"kind: 'Pod'\napiVersion: \"v1\"\nspec:\n  containers:\n  - image: a:1\n    name: c\n    args: ['x', \"yes\", \"1\"]\n    tty: True\n    env: [{value: 'n', name: NAME}]\nmetadata:\n  name: p\n", true},
	"json":             {`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"a:1","tty":true,"args":["x","yes","1"],"env":[{"name":"NAME","value":"n"}]}]}}`, true},
	"later document":   {equalBase + "---\na: 1\n", true},
	"anchors":          {podHead + "  - {name: &c c, image: a:1, tty: true, args: [x, 'yes', '1'], env: [{name: NAME, value: 'n'}]}\n", true},
	"merge key":        {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - {<<: {name: c, image: a:0}, image: a:1, tty: true, args: [x, 'yes', '1'], env: [{name: NAME, value: 'n'}]}\n", true},
	"other image":      {podHead + "  - {name: c, image: a:2, tty: true, args: [x, 'yes', '1'], env: [{name: NAME, value: 'n'}]}\n", false},
	"other bool":       {podHead + "  - {name: c, image: a:1, tty: false, args: [x, 'yes', '1'], env: [{name: NAME, value: 'n'}]}\n", false},
	"bool as text":     {podHead + "  - {name: c, image: a:1, tty: 'true', args: [x, 'yes', '1'], env: [{name: NAME, value: 'n'}]}\n", false},
	"number":           {podHead + "  - {name: c, image: a:1, tty: true, args: [x, 'yes', 1], env: [{name: NAME, value: 'n'}]}\n", false},
	"old bool":         {podHead + "  - {name: c, image: a:1, tty: true, args: [x, yes, '1'], env: [{name: NAME, value: 'n'}]}\n", false},
	"order of a list":  {podHead + "  - {name: c, image: a:1, tty: true, args: ['yes', x, '1'], env: [{name: NAME, value: 'n'}]}\n", false},
	"one more key":     {podHead + "  - {name: c, image: a:1, tty: true, stdin: true, args: [x, 'yes', '1'], env: [{name: NAME, value: 'n'}]}\n", false},
	"null":             {equalBase + "  volumes:\n", false},
	"one more item":    {equalBase + "  - {name: d, image: a:1}\n", false},
	"annotation":       {"apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {a: b}}\n" + equalBase[len("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"):], false},
}

func TestEqual(t *testing.T) {
	t.Parallel()
	for name, tc := range comparedPods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := equalBytes([]byte(equalBase), []byte(tc.other))
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
			back, err := equalBytes([]byte(tc.other), []byte(equalBase))
			require.NoError(t, err)
			assert.Equal(t, tc.want, back)
		})
	}
}

// kubelet's parser reads a key like any other value, and writes it as text (sigs.k8s.io/yaml, YAMLToJSON): on becomes
// "true", and +1 becomes "1".
func TestEqualComparesKeysAsKubelet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"a", "'a'", true},
		{"'on'", "\"on\"", true},
		{"on", "on", true},
		{"on", "'on'", false},
		{"y", "'y'", false},
		{"+1", "'+1'", false},
		{"~", "'~'", false},
	} {
		labelled := func(key string) []byte {
			return []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {" + key + ": b}}\n" +
				"spec: {containers: [{name: c, image: 'a:1'}]}\n")
		}
		got, err := equalBytes(labelled(tc.a), labelled(tc.b))
		require.NoError(t, err)
		assert.Equal(t, tc.want, got, "%s and %s", tc.a, tc.b)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	assert.Empty(t, manifests.Diff("a", "b", []byte("x\n"), []byte("x\n")))
	assert.Equal(t, "diff old new\n--- old\n+++ new\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n", manifests.Diff("old", "new", []byte("a\nb\n"), []byte("a\nc\n")))
}

// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A result with a change that was not planned is rejected.
func TestProveRejectsUnplannedChanges(t *testing.T) {
	t.Parallel()
	const template = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - {name: a, image: 'a:1'}\n"
	for name, c := range map[string]struct {
		out  string
		want string // empty: only planned changes
	}{
		"the same":            {template, ""},
		"another style":       {template + "# a comment\n", ""},
		"another image":       {template[:len(template)-4] + "2'}\n", errNotAsIntended.Error()},
		"another type":        {template + "  priority: \"1\"\n", errNotAsIntended.Error()},
		"one more key":        {template + "  hostNetwork: true\n", errNotAsIntended.Error()},
		"one more document":   {template + "---\nkind: Pod\n", errNotAsIntended.Error()},
		"what cannot be read": {template + "\t", "line"},
	} {
		f, err := Parse([]byte(template))
		require.NoError(t, err)
		p := f.plan(Overrides{})
		_, err = p.prove([]byte(c.out), f)
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.want, name)
	}
}

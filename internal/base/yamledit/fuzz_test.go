// SPDX-License-Identifier: Apache-2.0

package yamledit_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

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

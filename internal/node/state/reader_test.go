// SPDX-License-Identifier: Apache-2.0

package state

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// The files belong to the daemon: a plan reads what it can, and leaves the rest as it is.
func TestReaderWritesNothing(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"missing": "", "cut": `{"version": 1`, "of a newer agent": `{"version": 999}`, "no record": "[]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if text != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, recordFile), []byte(text), 0o600))
			}
			before, err := os.ReadDir(dir)
			require.NoError(t, err)
			r := NewReader(dir)
			got, err := r.Load(t.Context())
			require.NoError(t, err)
			assert.Equal(t, record.Record{Lost: got.Lost}, got)
			assert.Equal(t, text == "", got.Lost == nil)
			require.NoError(t, r.Save(t.Context(), got))
			require.NoError(t, r.Publish(t.Context(), status.Status{}))
			after, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Equal(t, names(before), names(after))
			if text != "" {
				assert.Equal(t, text, content(t, dir, recordFile))
			}
		})
	}
}

func TestReaderReadsTheRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := New(dir, t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, s.Save(t.Context(), record.Record{MinSpace: record.Entries[int64]{"a": 1}}))
	want, err := s.Load(t.Context())
	require.NoError(t, err)
	got, err := NewReader(dir).Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func names(entries []os.DirEntry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

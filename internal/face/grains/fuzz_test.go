// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzAnnounce edits any file: it is rejected, or has the grain afterwards, keeps the other entries, and is not edited
// a second time.
func FuzzAnnounce(f *testing.F) {
	for _, edit := range edits {
		f.Add([]byte(edit.before), "staged", "1.6", true)
	}
	for _, bad := range badFiles {
		if len(bad.content) < 1000 {
			f.Add([]byte(bad.content), "", "=", false)
		}
	}
	for content := range busyFiles {
		f.Add([]byte(content), "held", "", false)
	}
	f.Fuzz(func(t *testing.T, before []byte, state, text string, available bool) {
		g, err := Grain{
			Available: available, State: state, Reason: text, Count: len(text),
			Updates: []Update{{Image: text, To: state}, {Image: state, From: text, Digest: text}},
		}.normalized()
		if err != nil {
			return
		}
		doc, err := parse(before)
		if err != nil {
			return
		}
		after, err := doc.edit(g)
		if err != nil || after == nil {
			return
		}
		again, err := parse(after)
		require.NoError(t, err)
		data, err := again.edit(g)
		require.NoError(t, err)
		require.Nil(t, data)
		requireForeignLines(t, doc, before, after)
	})
}

// requireForeignLines checks that every line of others is unchanged and in order.
func requireForeignLines(t *testing.T, doc document, before, after []byte) {
	t.Helper()
	if isNothing(before) {
		return
	}
	at := 0
	keep := func(text []byte) {
		text = bytes.TrimRight(text, "\r\n")
		next := bytes.Index(after[at:], text)
		require.GreaterOrEqual(t, next, 0, "lost: %q", text)
		at += next + len(text)
	}
	from := 0
	for _, e := range doc.entries {
		if slices.Contains(ownKeys, e.Key) {
			keep(before[from:e.Start])
			from = e.End
		}
	}
	keep(before[from:])
}

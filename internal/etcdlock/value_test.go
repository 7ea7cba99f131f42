// SPDX-License-Identifier: Apache-2.0

package etcdlock

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What a node writes is read as its own.
func TestValueIsReadAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := value{
			Holder: rapid.StringN(1, -1, 300).Draw(t, "holder"), Machine: rapid.String().Draw(t, "machine"),
			Since: time.Unix(rapid.Int64Range(-62135596800, 253370764799).Draw(t, "since"), 0).UTC(),
		}
		assert.Equal(t, v, parse([]byte(v.text())))
	})
}

// Any value is free, a holder's or a note: only a blank one is free, and only one with the node and its machine is the
// node's. It can be shown, and a holder's can be written again.
func FuzzValue(f *testing.F) {
	for _, seed := range []string{
		"", " \n", "null", "{}", "Alice", `{"holder": "n", "machine": "m", "since": "2026-05-01T12:00:00Z"}`,
		`{"holder": "n", "machine": "m", "since": "9999-12-31T23:59:59-23:59"}`, `{"holder":"n","holder":""}`, `["n"]`, "\x00\xff",
	} {
		f.Add([]byte(seed))
	}
	c, err := New(Options{Node: "n", Machine: "m"})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		v := parse(data)
		assert.Equal(t, strings.TrimSpace(string(data)) == "", v.isFree())
		if c.has(v) {
			assert.Contains(t, string(data), "n")
			assert.True(t, c.has(parse([]byte(v.text()))), "%s", v.text())
		}
		if v.isFree() {
			return
		}
		h := v.asHolder()
		assert.NotEmpty(t, h.ID)
		assert.LessOrEqual(t, len(h.ID), maxHolder)
		assert.False(t, strings.ContainsFunc(h.ID, func(r rune) bool { return !unicode.IsPrint(r) }))
		_, err := h.Since.In(time.FixedZone("", 14*3600)).MarshalText()
		assert.NoError(t, err)
	})
}

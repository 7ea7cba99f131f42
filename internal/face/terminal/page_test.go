// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestColours(t *testing.T) {
	t.Parallel()
	for colour, want := range map[bool]string{false: "well, ill.\n", true: "well, \x1b[1;31mill\x1b[0m.\n"} {
		var out bytes.Buffer
		p := NewPage(&out, time.Now())
		assert.False(t, p.Colour, "not in a file")
		p.Colour = colour
		p.Painted(None, "well")
		p.Text(", ")
		p.Painted(Red, "ill")
		p.Line(".")
		require.NoError(t, p.Flush())
		assert.Equal(t, want, out.String())
	}
}

func TestTextStaysInItsColumn(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		0:  "a:  one two three four five six seven eight nine ten\n",
		40: "a:  one two three four five six seven\n    eight nine ten\n",
	} {
		var out bytes.Buffer
		p := NewPage(&out, time.Now())
		p.Width = width
		p.Text("a:")
		p.Item("  ", "one two three four five six seven eight nine ten")
		require.NoError(t, p.Flush())
		assert.Equal(t, want, out.String())
	}
}

// kolkata has an offset with half an hour, unlike the zones that a mistake would give.
func kolkata() *time.Location { return time.FixedZone("IST", 5*3600+1800) }

func TestInZoneChangesOnlyTimes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                               "",
		"2026-11-21T11:00:00Z":           "2026-11-21 16:30:00 IST",
		"(2026-11-21T11:00:00.123456Z);": "(2026-11-21 16:30:00 IST);",
		"2026-11-22T02:00:00+01:00, 2026-11-22T02:00:00Z": "2026-11-22 06:30:00 IST, 2026-11-22 07:30:00 IST",
		"until 9998-12-31T23:59:59Z: x":                   "until 9999-01-01 05:29:59 IST: x",
		"2026-11-21":                                      "2026-11-21",
		"2026-11-21T11:00:00":                             "2026-11-21T11:00:00",
		"2026-13-21T11:00:00Z":                            "2026-13-21T11:00:00Z",
		"12026-11-21T11:00:00Z":                           "12026-11-21T11:00:00Z",
		"grün 4.0.0-rev1-build1.3 T11:00:00Z":             "grün 4.0.0-rev1-build1.3 T11:00:00Z",
	} {
		assert.Equal(t, want, InZone(text, kolkata()))
	}
}

func FuzzInZone(f *testing.F) {
	f.Add("until 2026-11-21T11:00:00Z: x")
	f.Add("2026-11-22T02:00:00.+01:00")
	f.Fuzz(func(t *testing.T, text string) {
		once := InZone(text, kolkata())
		assert.Equal(t, once, InZone(once, kolkata()), "nothing is left to be shown otherwise")
	})
}

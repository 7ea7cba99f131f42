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

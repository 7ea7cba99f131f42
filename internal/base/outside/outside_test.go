// SPDX-License-Identifier: Apache-2.0

package outside_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

func TestTextIsOnePrintableLine(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"plain":               "plain",
		"two\nlines":          "two lines",
		"\x1b[31mred\x1b[0m":  " [31mred [0m",
		"bad \xff\xfe bytes":  "bad    bytes",
		"right\u202eto left":  "right to left",
		"größer 大":            "größer 大",
		"":                    "",
		"null\x00 and \u0085": "null  and  ",
	}
	for in, want := range cases {
		assert.Equal(t, want, outside.Text(in), "%q", in)
	}
	assert.Equal(t, strings.Repeat("x", 300), outside.Text(strings.Repeat("x", 300)))
	assert.Equal(t, strings.Repeat("x", 297)+"…", outside.Text(strings.Repeat("x", 301)))
	assert.Equal(t, strings.Repeat("x", 297)+"…", outside.Text(strings.Repeat("x", 4<<20)))
}

func TestLineIsBoundedAndStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		limit := rapid.IntRange(-1, 40).Draw(t, "limit")
		got := outside.Line(in, limit)
		assert.LessOrEqual(t, len(got), max(limit, 3))
		assert.True(t, utf8.ValidString(got))
		for _, r := range got {
			assert.True(t, unicode.IsPrint(r), "%q", r)
		}
		assert.Equal(t, got, outside.Line(got, limit), "a second time changes nothing")
	})
}

func TestErrorKeepsItsCause(t *testing.T) {
	t.Parallel()
	require.NoError(t, outside.Error(nil))
	assert.Equal(t, io.EOF, outside.Error(io.EOF), "a good message is left as it is")
	long := fmt.Errorf("%s: %w", strings.Repeat("y", 1000), io.ErrUnexpectedEOF)
	got := outside.Error(long)
	assert.Len(t, got.Error(), outside.MaxError)
	assert.Contains(t, got.Error(), "y…y")
	assert.True(t, strings.HasSuffix(got.Error(), ": unexpected EOF"), "the cause stands last, and stays")
	wide := outside.Error(errors.New(strings.Repeat("大", 1000)))
	assert.True(t, utf8.ValidString(wide.Error()))
	assert.LessOrEqual(t, len(wide.Error()), outside.MaxError)
	binary := outside.Error(errors.New(strings.Repeat("\xff\x1b", 1000)))
	assert.LessOrEqual(t, len(binary.Error()), outside.MaxError)
	require.ErrorIs(t, got, io.ErrUnexpectedEOF)
	assert.ErrorIs(t, got, long)
}

func TestTimeCanBeWrittenInEveryZone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"9999-12-31T23:59:59-12:00", "0000-01-01T00:00:00+12:00", "2026-11-22T10:00:00+01:00", "9998-12-31T23:59:59Z",
	} {
		in, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		got := outside.Time(in)
		for _, hours := range []int{-14, 0, 14} {
			_, err = json.Marshal(got.In(time.FixedZone("", hours*3600)))
			assert.NoError(t, err, "%s at %+d", text, hours)
		}
	}
	now := time.Date(2026, 11, 22, 10, 0, 0, 5, time.FixedZone("", 3600))
	assert.True(t, outside.Time(now).Equal(now))
	assert.Equal(t, time.UTC, outside.Time(now).Location())
	assert.True(t, outside.Time(time.Time{}).IsZero(), "no time stays no time")
}

func TestReadAllIsBounded(t *testing.T) {
	t.Parallel()
	got, err := outside.ReadAll(strings.NewReader("12345"), 5)
	require.NoError(t, err)
	assert.Equal(t, "12345", string(got))
	_, err = outside.ReadAll(strings.NewReader("123456"), 5)
	require.ErrorIs(t, err, outside.ErrTooLarge)
	require.EqualError(t, err, "too large: over 5 bytes")
}

// SPDX-License-Identifier: Apache-2.0

package outside_test

import (
	"bytes"
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

func isShown(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && r != '\t' && !unicode.IsPrint(r)
	})
}

func TestWriterMakesTextPrintable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := outside.NewWriter(&out)
	n, err := fmt.Fprint(w, "a\tb\n\x1b[31mred\x1b[0m \u202eright\x00 \xff größer\r\n")
	require.NoError(t, err)
	assert.Equal(t, 39, n)
	assert.Equal(t, "a\tb\n\ufffd[31mred\ufffd[0m \ufffdright\ufffd \ufffd größer\ufffd\n", out.String())
	w.Control("\x1b[K")
	assert.True(t, strings.HasSuffix(out.String(), "\n\x1b[K"))
}

// However the text is split into calls, it becomes printable, and printable text does not change.
func TestWriterDivided(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.StringOf(rapid.Rune()))).Draw(t, "parts")
		text := strings.Join(parts, "")
		size := rapid.IntRange(1, 5).Draw(t, "size")
		var whole, divided bytes.Buffer
		_, err := outside.NewWriter(&whole).Write([]byte(text))
		require.NoError(t, err)
		w := outside.NewWriter(&divided)
		for rest := []byte(text); len(rest) > 0; {
			n, err := w.Write(rest[:min(size, len(rest))])
			require.NoError(t, err)
			rest = rest[n:]
		}
		assert.Equal(t, whole.String(), divided.String())
		assert.True(t, isShown(divided.String()), "%q", divided.String())
		assert.Equal(t, utf8.RuneCountInString(text), utf8.RuneCountInString(whole.String()))
		if isShown(text) {
			assert.Equal(t, text, whole.String())
		}
	})
}

func TestWriterReturnsTheErrorBelow(t *testing.T) {
	t.Parallel()
	full := errors.New("no space left on device")
	_, err := outside.NewWriter(brokenWriter{full}).Write([]byte("a"))
	require.ErrorIs(t, err, full)
	require.ErrorIs(t, json.NewEncoder(outside.JSON(brokenWriter{full})).Encode("a"), full)
}

type brokenWriter struct{ err error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.err }

func TestJSONIsPrintableAndTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := map[string]string{"key": rapid.String().Draw(t, "text") + "\x7f\u0085\u202e\U000E0001\x1b"}
		var out bytes.Buffer
		enc := json.NewEncoder(outside.JSON(&out))
		enc.SetIndent("", "\t")
		require.NoError(t, enc.Encode(want))
		assert.True(t, isShown(out.String()), "%q", out.String())
		var got map[string]string
		require.NoError(t, json.Unmarshal(out.Bytes(), &got))
		assert.Equal(t, want, got)
	})
}

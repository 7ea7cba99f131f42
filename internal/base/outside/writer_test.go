// SPDX-License-Identifier: Apache-2.0

package outside_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

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

// SPDX-License-Identifier: Apache-2.0

package outside

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Writer makes text safe for a terminal, a journal or a log file: it replaces all characters except printable ones,
// tabs and line ends with U+FFFD, so that text cannot move the cursor, change a colour or hide other text. It is safe
// for concurrent use if the underlying writer is.
type Writer struct {
	mu   sync.Mutex
	w    io.Writer
	part []byte // the start of an incomplete character
	err  error  // the first of w
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes text. A character may be split between two calls.
func (w *Writer) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := append(w.part, text...)
	out := make([]byte, 0, len(rest))
	for len(rest) > 0 && utf8.FullRune(rest) {
		r, size := utf8.DecodeRune(rest)
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			r = utf8.RuneError
		}
		out, rest = utf8.AppendRune(out, r), rest[size:]
	}
	w.part = append([]byte(nil), rest...)
	if _, err := w.w.Write(out); err != nil {
		w.err = cmp.Or(w.err, err)
		return 0, err
	}
	return len(text), nil
}

// Err returns the first error of a write, for text whose writes are not checked one by one.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Control writes a control sequence of the agent unchanged.
func (w *Writer) Control(sequence string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = io.WriteString(w.w, sequence) // if it fails, so does the text
}

// JSON returns a writer for a json.Encoder, which escapes only the first 32 characters: the writer escapes all
// characters that are not printable, and keeps the values.
func JSON(w io.Writer) io.Writer { return jsonWriter{w} }

type jsonWriter struct{ w io.Writer }

// Write expects whole values, as an encoder writes them.
func (j jsonWriter) Write(text []byte) (int, error) {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			out = utf8.AppendRune(out, r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	if _, err := j.w.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

// SPDX-License-Identifier: Apache-2.0

package outside

import (
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Writer makes text safe for a terminal, a journal or a log file: it replaces everything
// but printable characters, tabs and line ends with U+FFFD, so that no text moves the
// cursor, changes a colour or hides other text. It is safe for concurrent use, if the
// underlying writer is.
type Writer struct {
	mu   sync.Mutex
	w    io.Writer
	part []byte // the beginning of an incomplete character
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes text. A character may be divided between two calls.
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
		return 0, err
	}
	return len(text), nil
}

// Control writes a control sequence of our own as it is.
func (w *Writer) Control(sequence string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = io.WriteString(w.w, sequence) // if it does not work, the text does not either
}

// JSON returns a writer for a json.Encoder, which escapes the first 32 characters only: it
// escapes everything that is not printable, and keeps the values.
func JSON(w io.Writer) io.Writer { return jsonWriter{w} }

type jsonWriter struct{ w io.Writer }

// Write writes whole values: an encoder does.
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

// SPDX-License-Identifier: Apache-2.0

// Package outside sanitizes texts, errors and times from registries, runtimes, signatures and other programs' files
// before they are stored, compared, logged or printed. Text and Error also mask possible secrets ([Mask]): a parser
// quotes the URL or the line that it cannot read.
//
// The results can be stored, read again and printed on a terminal: valid UTF-8, printable, of limited length; times in
// the years 1 to 9998, which RFC 3339 can represent in every time zone.
package outside

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// MaxText is the maximum length of Text in bytes: a sentence with a URL and a digest in it. MaxError is Error's: the
// error of a failed pull names the image and a layer, each with its digest, and the cause.
const (
	MaxText  = 300
	MaxError = 500
)

// ellipsis ends a shortened text.
const ellipsis = "…"

// Text returns one printable line of at most MaxText bytes, without secrets.
func Text(s string) string { return Line(Mask(ends(s)), MaxText) }

// maxMasked is the size of the start and the end of a text that is searched for secrets: far more than is kept.
const maxMasked = 32 << 10

// ends removes the middle of a very long text.
func ends(s string) string {
	if len(s) <= 2*maxMasked {
		return s
	}
	return cut(s, maxMasked) + ellipsis + tail(s, maxMasked)
}

// Line returns one printable line of at most limit bytes: every other character becomes a space, and a shortened text
// ends with an ellipsis. The limit is at least three, the length of the ellipsis.
func Line(s string, limit int) string {
	limit = max(limit, len(ellipsis))
	var b strings.Builder
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			r = ' '
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			return cut(b.String(), limit-len(ellipsis)) + ellipsis
		}
		b.WriteRune(r)
	}
	return b.String()
}

// cut shortens s to at most limit bytes without splitting a character.
func cut(s string, limit int) string {
	limit = min(limit, len(s))
	for limit > 0 && limit < len(s) && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Error returns err with a message that is one printable line of at most MaxError bytes, without secrets. A longer
// message loses its middle, because an error names the place first and the cause last. errors.Is and errors.As still
// find err. Error of nil is nil, and an err with a valid message is returned unchanged.
func Error(err error) error {
	if err == nil {
		return nil
	}
	text := Mask(ends(err.Error()))
	text = Line(text, max(len(text), MaxError)) // printable, but not shortened
	if len(text) > MaxError {
		text = cut(text, headOfError) + ellipsis + tail(text, MaxError-headOfError-len(ellipsis))
	}
	return WithText(err, text)
}

// WithText returns an error with another message; errors.Is and errors.As still find err.
func WithText(err error, text string) error {
	if text == err.Error() {
		return err
	}
	return &otherText{text: text, cause: err}
}

type otherText struct {
	text  string
	cause error
}

func (e *otherText) Error() string { return e.text }
func (e *otherText) Unwrap() error { return e.cause }

// headOfError is the number of bytes kept from the start of an error that is too long: the place and the object. The
// rest of MaxError is for the cause.
const headOfError = 190

// tail returns at most the last limit bytes of s without splitting a character.
func tail(s string, limit int) string {
	from := max(len(s)-limit, 0)
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return s[from:]
}

// The earliest and the latest result of Time: a year from either end, so that no time zone moves it out of the years 0
// to 9999.
var (
	earliest = time.Date(1, time.January, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(9998, time.December, 31, 23, 59, 59, 0, time.UTC)
)

// Time returns t in UTC, limited to the years 1 to 9998.
func Time(t time.Time) time.Time {
	t = t.UTC()
	switch {
	case t.Before(earliest):
		return earliest
	case t.After(latest):
		return latest
	default:
		return t
	}
}

// ErrTooLarge: data from outside has more bytes or entries than the caller accepts.
var ErrTooLarge = errors.New("too large")

// ReadAll reads r to its end; it returns ErrTooLarge after limit bytes.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: over %d bytes", ErrTooLarge, limit)
	}
	return data, nil
}

// Syntax returns the error of a parser as "not TOML: line 3, column 5", without the parser's words: they quote the
// file, which may have passwords at every place, in forms that Mask cannot know. format is what the file should be.
func Syntax(format string, err error) error {
	var toml interface{ Position() (line, column int) }
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &toml):
		line, column := toml.Position()
		return fmt.Errorf("not %s: line %d, column %d", format, line, column)
	case errors.As(err, &syntax):
		return fmt.Errorf("not %s: byte %d", format, syntax.Offset)
	default:
		return errors.New("not " + format)
	}
}

// Hide masks all texts of a document that v points to, except map keys: the last protection before output, for errors
// that include a parser's text. A field for the name of an image keeps what is a reference or a tag.
func Hide(v any) { hide(reflect.ValueOf(v)) }

// namesOfImages are the fields for references, tags and patterns of tags, which have passed their parsers.
var namesOfImages = map[string]bool{
	"Image": true, "Repository": true, "Tag": true, "Reference": true, "Follow": true, "From": true, "To": true,
	"Long": true,
}

// isName reports whether a text can only be a reference, a tag or a digest.
func isName(text string) bool { return nameOfImage().MatchString(text) }

var nameOfImage = lazyregexp.New(
	`^[A-Za-z0-9_][\w.-]*(?::[0-9]+/)?(?:[\w.-]+/)*[\w./-]*(?::[\w.-]+)?(?:@sha(?:256|512):[0-9a-f]+)?$`)

var text = reflect.TypeFor[string]()

func hide(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() && (v.Kind() == reflect.Pointer || v.Elem().Kind() == reflect.Pointer) {
			hide(v.Elem())
		}
	case reflect.String:
		if !v.CanSet() || v.Type() != text { // the agent's own types, such as kinds and digests, are plain words
			return
		}
		if masked := Mask(v.String()); masked != v.String() { // a document may share unchanged texts
			v.SetString(masked)
		}
	case reflect.Struct:
		for n := range v.NumField() {
			field := v.Type().Field(n)
			isKept := namesOfImages[field.Name] && field.Type == text && isName(v.Field(n).String())
			if field.IsExported() && !isKept {
				hide(v.Field(n))
			}
		}
	case reflect.Slice, reflect.Array:
		for n := range v.Len() {
			hide(v.Index(n))
		}
	case reflect.Map:
		hideMap(v)
	}
}

func hideMap(v reflect.Value) {
	for _, key := range v.MapKeys() {
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(v.MapIndex(key))
		if hide(value); !reflect.DeepEqual(value.Interface(), v.MapIndex(key).Interface()) {
			v.SetMapIndex(key, value)
		}
	}
}

// HideAttr returns a slog.HandlerOptions.ReplaceAttr that masks texts and errors.
func HideAttr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(Mask(v))
	case error:
		a.Value = slog.StringValue(Mask(v.Error()))
	case fmt.Stringer:
		if masked := Mask(v.String()); masked != v.String() { // a URL
			a.Value = slog.StringValue(masked)
		}
	}
	return a
}

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

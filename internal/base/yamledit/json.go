// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// ParseJSON parses one JSON object as JSON: with escapes that YAML does not have (`\/`, surrogate pairs) and white
// space that it rejects (tabs), without comments and single quotes. The trees equal those of the same text in YAML's
// flow style, and the promises are those of Parse.
func ParseJSON(data []byte) (*File, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%d bytes: larger than the limit of %d", len(data), MaxBytes)
	}
	f := &File{data: data, lines: lineStarts(data), json: true}
	if err := f.checkJSON(); err != nil {
		return nil, err
	}
	r := jsonReader{File: f, dec: json.NewDecoder(bytes.NewReader(data)), line: 1}
	r.at = f.lines[0]
	r.dec.UseNumber()
	root, err := r.value(1)
	if err != nil {
		return nil, err
	}
	doc := &yaml.Node{Kind: yaml.DocumentNode, Line: root.Line, Column: root.Column, Content: []*yaml.Node{root}}
	check := checker{anchored: map[*yaml.Node]measure{}, keys: map[string]*yaml.Node{}}
	if err := check.document(doc); err != nil {
		return nil, err
	}
	f.Documents = []*yaml.Node{doc}
	return f, nil
}

// checkJSON rejects anything but one JSON value.
func (f *File) checkJSON() error {
	for at, rest := 0, f.data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			return &Error{Line: f.Line(at), Problem: fmt.Sprintf("byte 0x%02x is not valid UTF-8", rest[0])}
		}
		at, rest = at+size, rest[size:]
	}
	var raw json.RawMessage
	err := json.Unmarshal(f.data, &raw)
	if syntax, is := errors.AsType[*json.SyntaxError](err); is {
		line := min(f.Line(int(syntax.Offset)-1), lastLine(f.data)) // a file that ends too early
		return &Error{Line: line, Problem: "begins with { and so is read as JSON: " + syntax.Error()}
	}
	return err
}

// jsonReader builds the tree of valid JSON.
type jsonReader struct {
	*File
	dec   *json.Decoder
	nodes int
	// The position up to which lines and columns are counted: an offset, its line, and the characters before it.
	at, line, column int
}

// next returns the next token, as a node without children and as the decoder's token.
func (r *jsonReader) next() (*yaml.Node, json.Token, error) {
	start := int(r.dec.InputOffset())
	token, err := r.dec.Token()
	if err != nil {
		return nil, nil, &Error{Line: r.Line(start), Problem: "read as JSON: " + err.Error()}
	}
	for start < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[start]) >= 0 {
		start++
	}
	n := &yaml.Node{Kind: yaml.ScalarNode}
	n.Line, n.Column = r.place(start)
	switch v := token.(type) {
	case json.Delim:
		n.Kind, n.Tag, n.Style = yaml.MappingNode, "!!map", yaml.FlowStyle
		if v == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
	case string:
		n.Tag, n.Value, n.Style = "!!str", v, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!int", v.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(v)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, token, nil
}

// place returns the line and the column of an offset, which must not be before the last one.
func (r *jsonReader) place(offset int) (line, column int) {
	for r.line < len(r.lines) && r.lines[r.line] <= offset {
		r.at, r.column = r.lines[r.line], 0
		r.line++
	}
	r.column += utf8.RuneCount(r.data[r.at:offset])
	r.at = offset
	return r.line, r.column + 1
}

// value reads a value at a depth.
func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	n, token, err := r.next()
	if err != nil {
		return nil, err
	}
	if r.nodes++; r.nodes > MaxNodes {
		return nil, ErrorAt(n, "more than %d nodes", MaxNodes)
	}
	if depth > MaxDepth {
		return nil, ErrorAt(n, "nested deeper than %d levels", MaxDepth)
	}
	if _, nested := token.(json.Delim); !nested {
		return n, nil
	}
	for r.dec.More() { // keys are values, too
		child, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, child)
	}
	_, err = r.dec.Token() // the closing bracket
	return n, err
}

// quoteJSON writes a JSON string with as few escapes as possible.
func quoteJSON(s string) string {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // encoding a string to a buffer does not fail
	return strings.TrimSuffix(out.String(), "\n")
}

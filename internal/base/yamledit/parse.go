// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Limits of Parse. Real pod manifests are below 32 KiB, 20 levels and 2,000 nodes; the limits keep a hostile or broken
// file from taking more than a fraction of a second.
const (
	MaxBytes = 1 << 20 // size of the file
	MaxDepth = 64      // nested nodes, aliases followed
	MaxNodes = 100_000 // nodes of the whole file, aliases expanded
	MaxDocs  = 256     // documents of the file; kubelet reads the first
)

const bom = "\uFEFF"

// Error is a defect of the input at a place.
type Error struct {
	Line    int    // from 1
	Problem string // lower case, without the line
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Problem) }

// ErrorAt returns an *Error at a node.
func ErrorAt(n *yaml.Node, format string, args ...any) error {
	return &Error{Line: n.Line, Problem: fmt.Sprintf(format, args...)}
}

// File is a parsed file. It keeps the slice that was parsed; neither the bytes nor the trees may change while ranges
// are in use.
type File struct {
	// Documents has one yaml.DocumentNode per document; an empty file has none.
	Documents []*yaml.Node

	data  []byte
	lines []int // offset of each line's first character, after a byte order mark
	json  bool  // read by ParseJSON
}

// Parse parses all documents of data and checks them against the package's promises. Every error is about the input; if
// it has a place it is an *Error.
func Parse(data []byte) (*File, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%d bytes: larger than the limit of %d", len(data), MaxBytes)
	}
	if err := checkText(data); err != nil {
		return nil, err
	}
	f := &File{data: data, lines: lineStarts(data)}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	check := checker{anchored: map[*yaml.Node]measure{}, keys: map[string]*yaml.Node{}}
	for {
		doc := new(yaml.Node)
		err := dec.Decode(doc)
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, SyntaxError(data, err)
		}
		if err := check.document(doc); err != nil {
			return nil, err
		}
		if f.Documents = append(f.Documents, doc); len(f.Documents) > MaxDocs {
			return nil, ErrorAt(doc, "more than %d documents", MaxDocs)
		}
	}
}

// checkText rejects what YAML's reader would reject, but names the line.
func checkText(data []byte) error {
	if bytes.HasPrefix(data, []byte("\xFE\xFF")) || bytes.HasPrefix(data, []byte("\xFF\xFE")) {
		return &Error{Line: 1, Problem: "encoded as UTF-16; save the file as UTF-8"}
	}
	line := 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return &Error{Line: line, Problem: fmt.Sprintf("byte 0x%02x is not valid UTF-8", data[i])}
		case r == '\n':
			line++
		case isControl(r):
			return &Error{Line: line, Problem: fmt.Sprintf("control character %U", r)}
		}
		i += size
	}
	return nil
}

// isControl reports a character outside YAML's c-printable (https://yaml.org/spec/1.2.2/#51-character-set).
func isControl(r rune) bool {
	switch {
	case r == '\t', r == '\n', r == '\r', r == 0x85:
		return false
	case r < 0x20, r >= 0x7F && r < 0xA0, r == 0xFFFE, r == 0xFFFF:
		return true
	}
	return false
}

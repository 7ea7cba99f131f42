// SPDX-License-Identifier: Apache-2.0

package distspec

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
)

// ErrNoTagList: JSON, but not a tag list. Such an answer does not say which tags exist.
var ErrNoTagList = errors.New("no tag list")

const (
	maxRaw  = 1 << 10 // bytes of a tag in a page, quotes and escapes included
	maxName = 128     // bytes of a tag (distribution specification)
	depth   = 64      // of nested lists and objects
)

// tooLong replaces a name that is longer than any tag.
const tooLong = `"`

// ReadTagPage reads one page of a tag list, and keeps only its names: Google's registries send megabytes of other data
// with them (`child`, `manifest`). It returns at most `most` names, which need not be tags; a name longer than a tag is
// replaced by a quote. It reads the reader to its end; the reader limits the size.
func ReadTagPage(from io.Reader, most int) ([]string, error) {
	s := scanner{in: bufio.NewReaderSize(from, 16<<10)}
	names, err := s.page(most)
	if err == nil {
		if c, errEnd := s.next(); errEnd == nil {
			err = fmt.Errorf("invalid character %q after the list", c)
		} else if !errors.Is(errEnd, io.EOF) {
			err = errEnd
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	return names, nil
}

// scanner reads JSON and keeps as little of it as possible.
type scanner struct{ in *bufio.Reader }

func (s scanner) page(most int) (names []string, err error) {
	c, err := s.next()
	if err != nil {
		return nil, err
	}
	if c != '{' {
		return nil, fmt.Errorf("invalid character %q at the beginning: %w", c, ErrNoTagList)
	}
	seen := map[string]bool{}
	err = s.elements('}', func() error {
		key, err := s.member()
		if err != nil {
			return err
		}
		switch {
		case key != "tags" && key != "name":
			return s.skip()
		case seen[key]:
			return fmt.Errorf("%s: appears twice", key)
		}
		seen[key] = true
		if key == "name" {
			return s.skip()
		}
		names, err = s.names(most)
		return err
	})
	if err == nil && !seen["tags"] && !seen["name"] {
		err = ErrNoTagList
	}
	return names, err
}

// names reads a list of strings, or null. An element that is null is an empty name.
func (s scanner) names(most int) ([]string, error) {
	c, err := s.next()
	switch {
	case err != nil:
		return nil, err
	case c == 'n':
		return nil, s.literal("ull")
	case c != '[':
		return nil, fmt.Errorf("tags: invalid character %q: %w", c, ErrNoTagList)
	}
	var names []string
	err = s.elements(']', func() error {
		if len(names) == most {
			return fmt.Errorf("%w entries of a list: over %d", ocimanifest.ErrTooMany, most)
		}
		c, err := s.next()
		if err != nil {
			return err
		}
		name := ""
		switch c {
		case '"':
			name, err = s.text()
		case 'n':
			err = s.literal("ull")
		default:
			err = fmt.Errorf("tags: invalid character %q: %w", c, ErrNoTagList)
		}
		names = append(names, name)
		return err
	})
	return names, err
}

// elements reads the elements between brackets. The opening bracket has been read.
func (s scanner) elements(end byte, element func() error) error {
	c, err := s.next()
	if err != nil || c == end {
		return err
	}
	if err := s.in.UnreadByte(); err != nil {
		return err
	}
	for {
		if err := element(); err != nil {
			return err
		}
		switch c, err := s.next(); {
		case err != nil:
			return err
		case c == end:
			return nil
		case c != ',':
			return fmt.Errorf("invalid character %q after an element", c)
		}
	}
}

// member reads the key of an object and its colon.
func (s scanner) member() (string, error) {
	c, err := s.next()
	if err == nil && c != '"' {
		err = fmt.Errorf("invalid character %q: no name", c)
	}
	if err != nil {
		return "", err
	}
	key, err := s.text()
	if err != nil {
		return "", err
	}
	if c, err = s.next(); err == nil && c != ':' {
		err = fmt.Errorf("invalid character %q after a name", c)
	}
	return key, err
}

// text reads a string whose quote has been read.
func (s scanner) text() (string, error) {
	raw := []byte{'"'}
	for {
		c, err := s.in.ReadByte()
		if err != nil {
			return "", err
		}
		if len(raw) < maxRaw {
			raw = append(raw, c)
		}
		switch c {
		case '"':
			var text string
			if len(raw) == maxRaw {
				return tooLong, nil
			}
			if err = json.Unmarshal(raw, &text); len(text) > maxName {
				text = tooLong
			}
			return text, err
		case '\\':
			if c, err = s.in.ReadByte(); err != nil {
				return "", err
			}
			if len(raw) < maxRaw {
				raw = append(raw, c)
			}
		}
	}
}

// skip reads and drops a value.
func (s scanner) skip() error { return s.skipBelow(depth) }

func (s scanner) skipBelow(levels int) error {
	c, err := s.next()
	if err != nil {
		return err
	}
	if levels == 0 {
		return fmt.Errorf("%w lists and objects in one another: over %d", ocimanifest.ErrTooMany, depth)
	}
	switch c {
	case '{':
		return s.elements('}', func() error {
			if _, err := s.member(); err != nil {
				return err
			}
			return s.skipBelow(levels - 1)
		})
	case '[':
		return s.elements(']', func() error { return s.skipBelow(levels - 1) })
	case '"':
		return s.skipText()
	}
	return s.skipScalar(c)
}

func (s scanner) skipText() error {
	for {
		c, err := s.in.ReadByte()
		if err == nil && c == '\\' {
			_, err = s.in.ReadByte()
		}
		if err != nil || c == '"' {
			return err
		}
	}
}

// skipScalar reads a number, true, false or null, whose first byte has been read.
func (s scanner) skipScalar(c byte) error {
	for isScalar(c) {
		next, err := s.in.ReadByte()
		if err != nil {
			return err
		}
		if !isScalar(next) {
			return s.in.UnreadByte()
		}
	}
	return fmt.Errorf("invalid character %q: no value", c)
}

func isScalar(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

func (s scanner) literal(rest string) error {
	for i := range len(rest) {
		if c, err := s.in.ReadByte(); err != nil {
			return err
		} else if c != rest[i] {
			return fmt.Errorf("invalid character %q: no value", c)
		}
	}
	return nil
}

// next returns the next byte that is not white space.
func (s scanner) next() (byte, error) {
	for {
		c, err := s.in.ReadByte()
		if err != nil || c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c, err
		}
	}
}

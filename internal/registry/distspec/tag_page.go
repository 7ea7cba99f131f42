// SPDX-License-Identifier: Apache-2.0

package distspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// ErrNoTagList: JSON, but not a tag list. Such an answer does not say which tags exist.
var ErrNoTagList = errors.New("no tag list")

const (
	maxName = 128 // bytes of a tag (distribution specification)
	depth   = 64  // of nested lists and objects
)

// tooLong replaces a name that is longer than any tag.
const tooLong = `"`

// ReadTagPage reads one page of a tag list, and keeps only its names: Google's registries send megabytes of other data
// with them (`child`, `manifest`). It returns at most `most` names, which need not be tags; a name longer than a tag is
// replaced by a quote. It reads the reader to its end; the reader limits the size.
func ReadTagPage(from io.Reader, most int) ([]string, error) {
	ends := &firstError{Reader: from}
	p := page{json.NewDecoder(ends)}
	names, err := p.read(most)
	if err == nil {
		switch token, errEnd := p.Token(); {
		case errEnd == nil:
			err = fmt.Errorf("%v after the list", token)
		case !errors.Is(errEnd, io.EOF):
			err = fmt.Errorf("after the list: %w", errEnd)
		}
	}
	switch {
	case err != nil && ends.err != nil && !errors.Is(ends.err, io.EOF):
		err = ends.err // the reader's: a limit or the end of a wait
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	return names, nil
}

// firstError ends with the first error. After one in More, the decoder would read again and get another.
type firstError struct {
	io.Reader
	err error
}

func (f *firstError) Read(p []byte) (n int, err error) {
	if f.err == nil {
		n, f.err = f.Reader.Read(p)
	}
	return n, f.err
}

// page reads token by token: encoding/json keeps nothing of what is skipped.
type page struct{ *json.Decoder }

func (p page) read(most int) (names []string, err error) {
	begin, err := p.Token()
	switch _, isSyntax := errors.AsType[*json.SyntaxError](err); {
	case isSyntax:
		return nil, fmt.Errorf("%w: %w", err, ErrNoTagList)
	case err == nil && begin != json.Delim('{'):
		return nil, ErrNoTagList
	}
	seen := map[any]bool{}
	for err == nil && p.More() {
		var key json.Token
		if key, err = p.Token(); err != nil {
			break
		}
		if key != "tags" && key != "name" {
			err = p.skip()
			continue
		}
		if seen[key] {
			return nil, fmt.Errorf("%s: appears twice", key)
		}
		if seen[key] = true; key == "name" {
			err = p.skip()
		} else {
			names, err = p.names(most)
		}
	}
	if err == nil {
		_, err = p.Token()
	}
	if err == nil && !seen["tags"] && !seen["name"] {
		err = ErrNoTagList
	}
	return names, err
}

// names reads a list of strings, or null. An element that is null is an empty name.
func (p page) names(most int) (names []string, err error) {
	begin, err := p.Token()
	if err != nil || begin == nil {
		return nil, err
	}
	if begin != json.Delim('[') {
		return nil, fmt.Errorf("tags: %v: %w", begin, ErrNoTagList)
	}
	for p.More() {
		if len(names) == most {
			return nil, fmt.Errorf("%w entries of a list: over %d", ocimanifest.ErrTooMany, most)
		}
		token, err := p.Token()
		if err != nil {
			return nil, err
		}
		name, isText := token.(string)
		switch {
		case !isText && token != nil:
			return nil, fmt.Errorf("tags: %v: %w", token, ErrNoTagList)
		case len(name) > maxName:
			name = tooLong
		}
		names = append(names, name)
	}
	_, err = p.Token()
	return names, err
}

// skip reads and drops a value.
func (p page) skip() error {
	for level := 0; ; {
		token, err := p.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			level++
		case json.Delim('}'), json.Delim(']'):
			level--
		}
		if level > depth {
			return fmt.Errorf("%w lists and objects in one another: over %d", ocimanifest.ErrTooMany, depth)
		}
		if level == 0 {
			return nil
		}
	}
}

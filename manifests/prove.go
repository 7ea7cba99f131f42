// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"errors"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

var errNotAsIntended = errors.New("differs from its template in more than was intended")

// prove parses the result and compares all its documents with the template's trees and the planned changes. If parsed
// is not nil and has the same bytes, prove uses it instead of parsing.
func (p *plan) prove(out []byte, parsed *File) (*File, error) {
	if parsed == nil || !bytes.Equal(parsed.Data, out) {
		var err error
		if parsed, err = Parse(out); err != nil {
			return nil, err
		}
	}
	if len(parsed.yaml.Documents) != len(p.yaml.Documents) {
		return nil, errNotAsIntended
	}
	for i, doc := range p.yaml.Documents {
		if !yamledit.Same(doc, parsed.yaml.Documents[i], p.intended) {
			return nil, errNotAsIntended
		}
	}
	return parsed, nil
}

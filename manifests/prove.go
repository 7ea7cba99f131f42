// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"errors"

	"github.com/kubic-project/image-update-agent/internal/yamledit"
)

var errNotAsIntended = errors.New("differs from its template in more than was intended")

// prove parses the result and compares all of its documents with the template's
// trees, to which the intended changes are made. The template's trees are spent.
func (p *plan) prove(out []byte) (*podFile, error) {
	after, err := load(out)
	if err != nil {
		return nil, err
	}
	for _, effect := range p.intended {
		effect()
	}
	if len(after.file.Documents) != len(p.file.Documents) {
		return nil, errNotAsIntended
	}
	for i, doc := range p.file.Documents {
		if !yamledit.Same(doc, after.file.Documents[i]) {
			return nil, errNotAsIntended
		}
	}
	return after, nil
}

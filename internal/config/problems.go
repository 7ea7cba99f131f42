// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"slices"
)

// maxProblems bounds a report: after that many, a file is not a configuration.
const maxProblems = 20

// problems collects what is wrong, in the order found.
type problems struct {
	found []error
	more  int
}

func (p *problems) add(at origin, err error) {
	if len(p.found) == maxProblems {
		p.more++
		return
	}
	p.found = append(p.found, fmt.Errorf("%s: %w", at, err))
}

func (p *problems) count() int { return len(p.found) + p.more }

// err is one line for each problem, nil for none.
func (p *problems) err() error {
	found := p.found
	if p.more > 0 {
		found = append(slices.Clip(found), fmt.Errorf("and %d more", p.more))
	}
	return errors.Join(found...)
}

// join takes over what a part found.
func (p *problems) join(err error) {
	if err != nil {
		p.found = append(p.found, err)
	}
}

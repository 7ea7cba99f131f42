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
	p.found = append(p.found, placed{at, err})
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

// placed is an error with where it was found.
type placed struct {
	at  origin
	err error
}

func (p placed) Error() string { return p.at.String() + ": " + p.err.Error() }

func (p placed) Unwrap() error { return p.err }

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Place   string `json:"place"` // a file, or the environment's variable; empty: of no single place
	Line    int    `json:"line"`  // 0: none
	Problem string `json:"problem"`
}

func (p Problem) Error() string {
	if p.Place == "" {
		return p.Problem
	}
	return origin{p.Place, p.Line}.String() + ": " + p.Problem
}

// ProblemsOf lists what an error of Load is about, in the order found. Of any other
// error it makes one problem.
func ProblemsOf(err error) []Problem {
	switch e := err.(type) { //nolint:errorlint // it walks through the wrapping itself
	case nil:
		return nil
	case placed:
		return []Problem{{Place: e.at.place, Line: e.at.line, Problem: e.err.Error()}}
	case interface{ Unwrap() []error }:
		var all []Problem
		for _, part := range e.Unwrap() {
			all = append(all, ProblemsOf(part)...)
		}
		return all
	case interface{ Unwrap() error }:
		if _, within := errors.AsType[placed](err); within {
			return ProblemsOf(e.Unwrap())
		}
	}
	return []Problem{{Problem: err.Error()}}
}

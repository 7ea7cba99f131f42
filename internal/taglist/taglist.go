// SPDX-License-Identifier: Apache-2.0

// Package taglist reads lists of image tags, and says what the parts of each tag are. The verbs
// `tags parse`, `tags sort` and `tags newest` print its values.
package taglist

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kubic-project/image-update-agent/internal/terminal"
	"github.com/kubic-project/image-update-agent/tags"
)

// maxLine bounds a line of input, in bytes: an OCI tag has at most 128.
const maxLine = 4 << 10

// Parsed is a tag and its parts: one line of `tags parse --output json`.
type Parsed struct {
	Tag    string `json:"tag"`
	Form   string `json:"form"`
	App    string `json:"app"`
	Rev    string `json:"rev"`
	Build  string `json:"build"`
	Reason string `json:"reason"` // why it is malformed or invalid

	tag tags.Tag // of SUSE's scheme
}

// The forms of what is not a tag of SUSE's scheme.
const (
	formMalformed = "malformed"
	formForeign   = "foreign"
	formInvalid   = "invalid"
)

// Newest is `tags newest --output json`.
type Newest struct {
	Follow string `json:"follow"`
	Newest string `json:"newest"` // empty: nothing is newer
	Change string `json:"change"`
}

// Read returns the lines of a text, without empty ones.
func Read(in io.Reader) ([]string, error) {
	var out []string
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			out = append(out, line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", len(out)+1, err)
	}
	return out, nil
}

// Parse parses each name. What is not a tag of SUSE's scheme has a reason.
func Parse(names []string, d tags.Dialect) []Parsed {
	parsed := make([]Parsed, 0, len(names))
	for _, name := range names {
		parsed = append(parsed, parse(name, d))
	}
	return parsed
}

func parse(name string, d tags.Dialect) Parsed {
	t, err := d.Parse(name)
	if err == nil {
		return Parsed{Tag: t.String(), Form: t.Form().String(), App: t.App(), Rev: t.Rev(), Build: t.Build(), tag: t}
	}
	p := Parsed{Tag: name, Form: formForeign, Reason: tags.Reason(err)}
	if errors.Is(err, tags.ErrMalformed) {
		p.Form = formMalformed
	} else if errors.Is(err, tags.ErrInvalid) {
		p.Form = formInvalid
	}
	return p
}

// SUSE returns the tags of SUSE's scheme. It counts the others on report, one form a line.
func SUSE(all []Parsed, report io.Writer) []Parsed {
	for _, form := range []string{formMalformed, formForeign, formInvalid} {
		before := len(all)
		all = slices.DeleteFunc(all, func(p Parsed) bool { return p.Form == form })
		if left := before - len(all); left > 0 {
			fmt.Fprintf(report, "left out: %d %s\n", left, form)
		}
	}
	return all
}

// Sort sorts tags of SUSE's scheme, the oldest first.
func Sort(list []Parsed) {
	slices.SortFunc(list, func(x, y Parsed) int { return tags.Compare(x.tag, y.tag) })
}

// NewestOf returns the newest tag that a policy allows for the followed one.
func NewestOf(list []Parsed, follow tags.Tag, largest tags.Change) Newest {
	all := make([]tags.Tag, 0, len(list))
	for _, p := range list {
		all = append(all, p.tag)
	}
	newest, _ := tags.Newest(all, follow, largest)
	if change := tags.ChangeBetween(follow, newest); change > tags.Same {
		return Newest{follow.String(), newest.String(), change.String()}
	}
	return Newest{Follow: follow.String()}
}

// Print writes a table of the tags. It has a column of reasons only where a tag has one.
func Print(out io.Writer, parsed []Parsed) error {
	wrong := slices.ContainsFunc(parsed, func(p Parsed) bool { return p.Reason != "" })
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		for n := range cells {
			cells[n] = cmp.Or(cells[n], "-")
		}
		if !wrong {
			cells = cells[:len(cells)-1]
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	if len(parsed) > 0 {
		row("TAG", "FORM", "APP", "REV", "BUILD", "REASON")
	}
	for _, p := range parsed {
		row(terminal.Quoted(p.Tag), p.Form, p.App, p.Rev, p.Build, p.Reason)
	}
	return table.Flush()
}

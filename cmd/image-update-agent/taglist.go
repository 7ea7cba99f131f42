// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/tags"
)

// maxLine bounds a line of input, in bytes: an OCI tag has at most 128.
const maxLine = 4 << 10

// parsedTag is a tag and its parts: one line of `tags parse --output json`.
type parsedTag struct {
	Tag    string `json:"tag"`
	Form   string `json:"form"`
	App    string `json:"app"`
	Rev    string `json:"rev"`
	Build  string `json:"build"`
	Pre    string `json:"pre"`
	Name   string `json:"name"`
	Reason string `json:"reason"` // why it has no order

	tag tags.Tag // zero: it has no order
}

// The forms of what has no order.
const (
	formMalformed    = "malformed"
	formUnrecognized = "unrecognized"
	formInvalid      = "invalid"
)

// newestTag is `tags newest --output json`.
type newestTag struct {
	Follow string `json:"follow"`
	Newest string `json:"newest"` // empty: nothing is newer
	Change string `json:"change"`
	// NotUnderstood are tags that look newer, and why none of them is offered.
	NotUnderstood []tags.NotUnderstood `json:"notUnderstood"`
}

// maxNotUnderstood bounds what newestTag names: the highest are enough to see what is wrong.
const maxNotUnderstood = 8

// readTags returns the lines of a text, without empty ones.
func readTags(in io.Reader) ([]string, error) {
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

// parseNames parses each name. What has no order has a reason.
func parseNames(names []string, s tags.Scheme) []parsedTag {
	parsed := make([]parsedTag, 0, len(names))
	for _, name := range names {
		parsed = append(parsed, parseName(name, s))
	}
	return parsed
}

func parseName(name string, s tags.Scheme) parsedTag {
	t, err := s.Parse(name)
	if err == nil {
		return parsedTag{
			Tag: t.String(), Form: t.Form().String(), App: t.App(), Rev: t.Rev(), Build: t.Build(),
			Pre: t.Pre(), Name: t.Name(), tag: t,
		}
	}
	p := parsedTag{Tag: name, Form: formUnrecognized, Reason: tags.Reason(err)}
	if errors.Is(err, tags.ErrMalformed) {
		p.Form = formMalformed
	} else if errors.Is(err, tags.ErrInvalid) {
		p.Form = formInvalid
	}
	return p
}

// onlyOrdered returns the tags that have an order. It counts the others on report, one form a line.
func onlyOrdered(all []parsedTag, report io.Writer) []parsedTag {
	for _, form := range []string{formMalformed, formUnrecognized, formInvalid} {
		before := len(all)
		all = slices.DeleteFunc(all, func(p parsedTag) bool { return p.Form == form })
		if left := before - len(all); left > 0 {
			fmt.Fprintf(report, "skipped: %d %s\n", left, form)
		}
	}
	return all
}

// sortTags sorts tags that have an order, the oldest first.
func sortTags(list []parsedTag) {
	slices.SortFunc(list, func(x, y parsedTag) int { return tags.Compare(x.tag, y.tag) })
}

// newestOf returns the newest tag that a policy allows for the followed one, and what looks newer
// and is not understood.
func newestOf(list []parsedTag, follow tags.Tag, largest tags.Change, s tags.Scheme) newestTag {
	all, names := make([]tags.Tag, 0, len(list)), make([]string, 0, len(list))
	for _, p := range list {
		names = append(names, p.Tag)
		if !p.tag.IsZero() {
			all = append(all, p.tag)
		}
	}
	out := newestTag{
		Follow:        follow.String(),
		NotUnderstood: append([]tags.NotUnderstood{}, tags.FindNotUnderstood(names, follow, s, maxNotUnderstood)...),
	}
	newest, _ := tags.Newest(all, follow, largest)
	if change := tags.ChangeBetween(follow, newest); change > tags.Same {
		out.Newest, out.Change = newest.String(), change.String()
	}
	return out
}

// printTags writes a table of the tags. It has a column of reasons only where a tag has one.
func printTags(out io.Writer, parsed []parsedTag) error {
	wrong := slices.ContainsFunc(parsed, func(p parsedTag) bool { return p.Reason != "" })
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
		row("TAG", "FORM", "APP", "REV", "BUILD", "PRE", "NAME", "REASON")
	}
	for _, p := range parsed {
		row(terminal.Quoted(p.Tag), p.Form, p.App, p.Rev, p.Build, p.Pre, p.Name, p.Reason)
	}
	return table.Flush()
}

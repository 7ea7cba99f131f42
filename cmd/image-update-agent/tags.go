// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/terminal"
	"github.com/kubic-project/image-update-agent/tags"
)

// maxTagLine bounds a line of input, in bytes: an OCI tag has at most 128.
const maxTagLine = 4 << 10

func (a *app) tagsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tags",
		Short: "Parse and sort image tags of SUSE's three-tag scheme, and find the newest",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var dialect string
	dialects := []string{"core", "hyphen", "hyphen-dash", "short-b", "plus"}
	cmd.PersistentFlags().StringVar(&dialect, "dialect", "core", "how the tags are spelt: "+strings.Join(dialects, ", "))
	values(cmd, "dialect", dialects...)
	cmd.AddCommand(a.tagsParseCommand(&dialect), a.tagsSortCommand(&dialect), a.tagsNewestCommand(&dialect))
	return cmd
}

// parsedTag is one line of `tags parse --output json`, and of sort.
type parsedTag struct {
	Tag    string `json:"tag"`
	Form   string `json:"form"`
	App    string `json:"app"`
	Rev    string `json:"rev"`
	Build  string `json:"build"`
	Reason string `json:"reason"` // why it is malformed or invalid
}

// newestTag is `tags newest --output json`.
type newestTag struct {
	Follow string `json:"follow"`
	Newest string `json:"newest"` // empty: nothing is newer
	Change string `json:"change"`
}

func (a *app) tagsParseCommand(dialect *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "parse [TAG...]",
		Short: "Show the parts of tags: form, application version, revision, build",
		Example: `  image-update-agent tags parse 2.6.2-rev1-build5.1
  skopeo list-tags docker://registry.suse.com/caasp/v4/velum | jq -r '.Tags[]' |
    image-update-agent tags parse --output json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := tags.ParseDialect(*dialect)
			if err != nil {
				return usageError{err}
			}
			names, err := a.arguments(cmd.Context(), args)
			if err != nil {
				return err
			}
			return a.printParsed(names, d)
		},
	}
	a.outputFlag(cmd)
	return cmd
}

func (a *app) printParsed(names []string, d tags.Dialect) error {
	parsed := make([]parsedTag, 0, len(names))
	wrong := false
	for _, name := range names {
		p := parseTag(name, d)
		parsed, wrong = append(parsed, p), wrong || p.Reason != ""
	}
	if a.output == "json" {
		return printLines(a.encoder(), parsed)
	}
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		if !wrong {
			cells = cells[:len(cells)-1]
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	if len(parsed) > 0 {
		row("TAG", "FORM", "APP", "REV", "BUILD", "REASON")
	}
	for _, p := range parsed {
		cells := []string{terminal.Quoted(p.Tag), p.Form, p.App, p.Rev, p.Build, p.Reason}
		for n := range cells {
			cells[n] = cmp.Or(cells[n], "-")
		}
		row(cells...)
	}
	return table.Flush()
}

func parseTag(name string, d tags.Dialect) parsedTag {
	t, err := d.Parse(name)
	if err == nil {
		return parsedOf(t)
	}
	p := parsedTag{Tag: name, Form: "foreign", Reason: tags.Reason(err)}
	if _, ok := errors.AsType[*tags.MalformedError](err); ok {
		p.Form = "malformed"
	} else if errors.Is(err, tags.ErrInvalid) {
		p.Form = "invalid"
	}
	return p
}

func parsedOf(t tags.Tag) parsedTag {
	return parsedTag{Tag: t.String(), Form: t.Form().String(), App: t.App(), Rev: t.Rev(), Build: t.Build()}
}

func (a *app) tagsSortCommand(dialect *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sort [TAG...]",
		Short:   "Sort SUSE tags, oldest first; others are left out and counted",
		Example: `  image-update-agent tags sort 4.0.0-rev1-build1.10 4.0.0-rev1-build1.9`,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := a.suseTags(cmd.Context(), args, *dialect)
			if err != nil {
				return err
			}
			slices.SortFunc(list, tags.Compare)
			return a.printSorted(list)
		},
	}
	a.outputFlag(cmd)
	return cmd
}

func (a *app) printSorted(list []tags.Tag) error {
	if a.output == "json" {
		sorted := make([]parsedTag, 0, len(list))
		for _, t := range list {
			sorted = append(sorted, parsedOf(t))
		}
		return printLines(a.encoder(), sorted)
	}
	out := bufio.NewWriter(a.out)
	for _, t := range list {
		fmt.Fprintln(out, t)
	}
	return out.Flush()
}

func (a *app) tagsNewestCommand(dialect *string) *cobra.Command {
	var follow, updates string
	cmd := &cobra.Command{
		Use:   "newest --follow TAG [--updates CHANGE] [TAG...]",
		Short: "Show the newest tag that a policy allows for the one followed",
		Long: `newest shows the newest of the tags that a policy allows for the one followed.

Exit status: 0 it is newer, 3 nothing is newer, and nothing is printed.`,
		Example: `  image-update-agent tags newest --follow 4.0.0-rev1 --updates revision \
    4.0.0-rev1 4.0.0-rev2 4.1.0-rev1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow == "" {
				return usageError{fmt.Errorf("%s: --follow TAG is missing", cmd.CommandPath())}
			}
			change, err := tags.ParseChange(updates)
			if err != nil {
				return usageError{fmt.Errorf("--updates: %w", err)}
			}
			d, err := tags.ParseDialect(*dialect)
			if err != nil {
				return usageError{err}
			}
			from, err := d.Parse(follow)
			if err != nil {
				return usageError{fmt.Errorf("--follow: %w", err)}
			}
			list, err := a.suseTags(cmd.Context(), args, *dialect)
			if err != nil {
				return err
			}
			return a.printNewest(list, from, change)
		},
	}
	cmd.Flags().StringVar(&follow, "follow", "", "the tag that is followed")
	changes := []string{"none", "rebuild", "revision", "patch", "minor", "major"}
	cmd.Flags().StringVar(&updates, "updates", "revision", "the largest change: "+strings.Join(changes, ", "))
	values(cmd, "updates", changes...)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) printNewest(list []tags.Tag, from tags.Tag, largest tags.Change) error {
	newest, _ := tags.Newest(list, from, largest)
	change := tags.ChangeBetween(from, newest)
	if change <= tags.Same {
		if a.output == "json" {
			if err := a.printJSON(newestTag{Follow: from.String()}); err != nil {
				return err
			}
		}
		fmt.Fprintf(a.err, "nothing newer than %s within %s\n", from, largest)
		return exitError{exitNothing}
	}
	if a.output == "json" {
		return a.printJSON(newestTag{Follow: from.String(), Newest: newest.String(), Change: change.String()})
	}
	_, err := fmt.Fprintln(a.out, newest)
	return err
}

// suseTags parses the SUSE tags among the arguments and counts the others.
func (a *app) suseTags(ctx context.Context, args []string, dialect string) ([]tags.Tag, error) {
	d, err := tags.ParseDialect(dialect)
	if err != nil {
		return nil, usageError{err}
	}
	names, err := a.arguments(ctx, args)
	if err != nil {
		return nil, err
	}
	var list []tags.Tag
	left := map[string]int{}
	for _, n := range names {
		if t, err := d.Parse(n); err == nil {
			list = append(list, t)
		} else {
			left[parseTag(n, d).Form]++
		}
	}
	for _, form := range []string{"malformed", "foreign", "invalid"} {
		if left[form] > 0 {
			fmt.Fprintf(a.err, "left out: %d %s\n", left[form], form)
		}
	}
	return list, nil
}

// arguments are the arguments, or the lines of standard input without any.
func (a *app) arguments(ctx context.Context, args []string) ([]string, error) {
	if len(args) > 0 {
		return args, nil
	}
	lines, err := await(ctx, func() ([]string, error) { return linesOf(a.in) })
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return lines, nil
}

// linesOf are the lines of a text, without empty ones.
func linesOf(in io.Reader) ([]string, error) {
	var out []string
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxTagLine)
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

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
	var dialect string
	cmd := group("tags", "Parse and sort image tags of SUSE's three-tag scheme, and find the newest",
		a.tagsParseCommand(&dialect), a.tagsSortCommand(&dialect), a.tagsNewestCommand(&dialect))
	dialects := []string{"core", "hyphen", "hyphen-dash", "short-b", "plus"}
	cmd.PersistentFlags().StringVar(&dialect, "dialect", "core", "how the tags are spelt: "+strings.Join(dialects, ", "))
	values(cmd, "dialect", dialects...)
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

	tag tags.Tag // of SUSE's scheme
}

func (a *app) tagsParseCommand(dialect *string) *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "parse [TAG...]",
		Short: "Show the parts of tags: form, application version, revision, build",
		Example: `  image-update-agent tags parse 2.6.2-rev1-build5.1
  skopeo list-tags docker://registry.suse.com/caasp/v4/velum | jq -r '.Tags[]' |
    image-update-agent tags parse --output json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			parsed, err := a.parseTags(cmd.Context(), args, *dialect)
			if err != nil {
				return err
			}
			return a.printParsed(parsed)
		},
	})
}

func (a *app) printParsed(parsed []parsedTag) error {
	if a.output == "json" {
		return printLines(a.encoder(), parsed)
	}
	wrong := slices.ContainsFunc(parsed, func(p parsedTag) bool { return p.Reason != "" })
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
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

func (a *app) tagsSortCommand(dialect *string) *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:     "sort [TAG...]",
		Short:   "Sort SUSE tags, oldest first; others are left out and counted",
		Example: `  image-update-agent tags sort 4.0.0-rev1-build1.10 4.0.0-rev1-build1.9`,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := a.suseTags(cmd.Context(), args, *dialect)
			if err != nil {
				return err
			}
			slices.SortFunc(list, func(x, y parsedTag) int { return tags.Compare(x.tag, y.tag) })
			if a.output == "json" {
				return printLines(a.encoder(), list)
			}
			out := bufio.NewWriter(a.out)
			for _, p := range list {
				fmt.Fprintln(out, p.Tag)
			}
			return out.Flush()
		},
	})
}

// newestTag is `tags newest --output json`.
type newestTag struct {
	Follow string `json:"follow"`
	Newest string `json:"newest"` // empty: nothing is newer
	Change string `json:"change"`
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
	return a.withOutput(cmd)
}

func (a *app) printNewest(list []parsedTag, from tags.Tag, largest tags.Change) error {
	var all []tags.Tag
	for _, p := range list {
		all = append(all, p.tag)
	}
	newest, _ := tags.Newest(all, from, largest)
	change := tags.ChangeBetween(from, newest)
	if change > tags.Same {
		return a.show(newestTag{from.String(), newest.String(), change.String()}, func() error {
			_, err := fmt.Fprintln(a.out, newest)
			return err
		})
	}
	fmt.Fprintf(a.err, "nothing newer than %s within %s\n", from, largest)
	if err := a.show(newestTag{Follow: from.String()}, func() error { return nil }); err != nil {
		return err
	}
	return exitError{exitNothing}
}

// parseTags reads tags, those that are none with the reason.
func (a *app) parseTags(ctx context.Context, args []string, dialect string) ([]parsedTag, error) {
	d, err := tags.ParseDialect(dialect)
	if err != nil {
		return nil, usageError{err}
	}
	names := args
	if len(names) == 0 {
		if names, err = await(ctx, func() ([]string, error) { return linesOf(a.in) }); err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
	}
	parsed := make([]parsedTag, 0, len(names))
	for _, name := range names {
		parsed = append(parsed, parseTag(name, d))
	}
	return parsed, nil
}

func parseTag(name string, d tags.Dialect) parsedTag {
	t, err := d.Parse(name)
	if err == nil {
		return parsedTag{Tag: t.String(), Form: t.Form().String(), App: t.App(), Rev: t.Rev(), Build: t.Build(), tag: t}
	}
	p := parsedTag{Tag: name, Form: "foreign", Reason: tags.Reason(err)}
	if errors.Is(err, tags.ErrMalformed) {
		p.Form = "malformed"
	} else if errors.Is(err, tags.ErrInvalid) {
		p.Form = "invalid"
	}
	return p
}

// suseTags reads the SUSE tags, and counts the others.
func (a *app) suseTags(ctx context.Context, args []string, dialect string) ([]parsedTag, error) {
	all, err := a.parseTags(ctx, args, dialect)
	if err != nil {
		return nil, err
	}
	for _, form := range []string{"malformed", "foreign", "invalid"} {
		before := len(all)
		all = slices.DeleteFunc(all, func(p parsedTag) bool { return p.Form == form })
		if left := before - len(all); left > 0 {
			fmt.Fprintf(a.err, "left out: %d %s\n", left, form)
		}
	}
	return all, nil
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

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

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

func (a *app) tagsCommand() *cobra.Command {
	var flags schemeFlags
	cmd := group("tags", "Parse, sort and compare image tags",
		a.tagsParseCommand(&flags), a.tagsSortCommand(&flags), a.tagsNewestCommand(&flags), a.tagsExplainCommand(&flags))
	flags.addTo(cmd)
	return cmd
}

func (a *app) tagsParseCommand(flags *schemeFlags) *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "parse [TAG...]",
		Short: "Show the parts of tags: form, version, revision, build",
		Long: `parse shows the parts of each tag. Tags of SUSE's scheme have the form short, intermediate
or long; a tag of another scheme has the form single and a name that stays the same from
tag to tag. A tag that cannot be ordered is unrecognized, malformed or invalid, with a
reason. Without TAG, parse reads tags from standard input.`,
		Example: `  image-update-agent tags parse 2.6.2-rev1-build5.1 1.27.0-alpine
  skopeo list-tags docker://registry.suse.com/caasp/v4/velum | jq -r '.Tags[]' |
    image-update-agent tags parse --output json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := flags.scheme()
			if err != nil {
				return err
			}
			parsed, err := a.parseTags(cmd.Context(), args, s)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return printLines(a.encoder(), parsed)
			}
			return printTags(a.out, parsed)
		},
	})
}

func (a *app) tagsSortCommand(flags *schemeFlags) *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "sort [TAG...]",
		Short: "Sort tags, the oldest first",
		Long: `sort prints the tags in their order, the oldest first. It leaves out tags that cannot be
ordered, and prints their number to standard error. Without TAG, it reads tags from
standard input.`,
		Example: `  image-update-agent tags sort 4.0.0-rev1-build1.10 4.0.0-rev1-build1.9`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := flags.scheme()
			if err != nil {
				return err
			}
			all, err := a.parseTags(cmd.Context(), args, s)
			if err != nil {
				return err
			}
			list := onlyOrdered(all, a.err)
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

func (a *app) tagsNewestCommand(flags *schemeFlags) *cobra.Command {
	var follow, updates string
	cmd := &cobra.Command{
		Use:   "newest --follow TAG [--updates CHANGE] [TAG...]",
		Short: "Show the newest tag that a policy allows",
		Long: `newest shows the newest of the tags that the policy allows for an image that follows a tag.
To standard error it prints the tags that only a larger --updates allows, and tags that
look newer but cannot be compared, with the reason. Without TAG arguments, it reads tags
from standard input.

Exit status: 0 a tag is newer, 3 no tag is newer, and none is printed.`,
		Example: `  image-update-agent tags newest --follow 4.0.0-rev1 --updates revision \
    4.0.0-rev1 4.0.0-rev2 4.1.0-rev1
  image-update-agent tags newest --follow 3.0.5-alpine --updates minor 3.0.6 3.1.1-alpine`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow == "" {
				return cli.Usage(fmt.Errorf("%s: --follow TAG is required", cmd.CommandPath()))
			}
			change, err := tags.ParseChange(updates)
			if err != nil {
				return cli.Usage(fmt.Errorf("--updates: %w", err))
			}
			s, err := flags.scheme()
			if err != nil {
				return err
			}
			from, err := s.Parse(follow)
			if err != nil {
				return cli.Usage(fmt.Errorf("--follow: %w", err))
			}
			all, err := a.parseTags(cmd.Context(), args, s)
			if err != nil {
				return err
			}
			newest := newestOf(all, from, change, s)
			onlyOrdered(all, a.err)
			last := newest.Newest
			for larger := change + 1; larger <= tags.Major; larger++ {
				if more := newestOf(all, from, larger, s); more.Newest != last {
					last = more.Newest
					fmt.Fprintf(a.err, "newer, but only with --updates %s: %s\n", more.Change, last)
				}
			}
			return a.printNewest(newest, from, change)
		},
	}
	cmd.Flags().StringVar(&follow, "follow", "", "tag that the image follows")
	changes := []string{"none", "rebuild", "revision", "patch", "minor", "major"}
	cmd.Flags().StringVar(&updates, "updates", "revision", "largest change to allow: "+strings.Join(changes, ", "))
	cli.Values(cmd, "updates", changes...)
	return a.withOutput(cmd)
}

func (a *app) printNewest(newest newestTag, from tags.Tag, largest tags.Change) error {
	for _, n := range newest.NotUnderstood {
		fmt.Fprintln(a.err, terminal.Quoted("looks newer, but cannot be compared: "+n.String()))
	}
	if newest.Newest != "" {
		return a.show(newest, func() error {
			_, err := fmt.Fprintln(a.out, newest.Newest)
			return err
		})
	}
	fmt.Fprintf(a.err, "no tag is newer than %s (largest change: %s)\n", from, largest)
	if err := a.show(newest, func() error { return nil }); err != nil {
		return err
	}
	return cli.Exit(exitNothing)
}

// parseTags reads tags from the arguments, or from standard input where there are none.
func (a *app) parseTags(ctx context.Context, args []string, s tags.Scheme) ([]parsedTag, error) {
	names := args
	if len(names) == 0 {
		var err error
		if names, err = wait.Result(ctx, func() ([]string, error) { return readTags(a.in) }); err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
	}
	parsed := make([]parsedTag, 0, len(names))
	for _, name := range names {
		parsed = append(parsed, parseName(name, s))
	}
	return parsed, nil
}

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

// parseName parses a tag. One without an order has a reason.
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

func (a *app) tagsExplainCommand(flags *schemeFlags) *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "explain TAG [OTHER...]",
		Short: "Show how the agent reads a tag, and which tags it would offer",
		Long: `explain shows how the agent reads a tag: its name, which stays the same, and its numbers.
For each OTHER tag, it shows the smallest value of updates that offers it, or the reason
why none does and the tags.pattern that would. Without OTHER, it uses made-up examples.

Exit status: 0 the tag can be ordered, 3 it cannot.`,
		Example: `  image-update-agent tags explain 1.27.0-alpine
  image-update-agent tags explain 1.27.0-alpine3.19 1.27.1-alpine3.20
  image-update-agent tags explain --pattern '^(?P<version>.*)-alpine[0-9.]+$' \
    1.27.0-alpine3.19 1.27.1-alpine3.20`,
		Args: someArgs("TAG"),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := flags.scheme()
			if err != nil {
				return err
			}
			e := s.Explain(args[0], args[1:]...)
			if err := a.show(e, func() error { return printExplanation(a.out, e, s) }); err != nil {
				return err
			}
			if e.Reason != "" {
				return cli.Exit(exitNothing)
			}
			return nil
		},
	})
}

func printExplanation(out io.Writer, e tags.Explanation, s tags.Scheme) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(table, "%s:\t%s\n", name, terminal.Quoted(value)) }
	row("Tag", e.Tag)
	row("Form", string(e.Form))
	if e.Reason != "" {
		fmt.Fprintf(table, "Not ordered:\t%s\n", terminal.OneLine(e.Reason))
		row("Follows", followed(e, s))
		switch tag := tagIn(e.Tag); {
		case e.Form == tags.ClassInvalid && tag != "":
			row("Remedy", "give only the tag: "+tag)
		case e.Pattern != "":
			fmt.Fprintf(table, "Remedy:\ttags: {pattern: '%s'}\n", e.Pattern)
		}
		return table.Flush()
	}
	row("Name", e.Name)
	row("Version", e.Version)
	for _, part := range [][2]string{{"Pre-release", e.Pre}, {"Revision", e.Rev}, {"Build", e.Build}} {
		if part[1] != "" {
			row(part[0], part[1])
		}
	}
	row("Follows", followed(e, s))
	fmt.Fprint(table, "\nTAG\tUPDATES\tWHY NOT\n")
	for _, v := range e.Tags {
		why := v.Reason
		if v.Pattern != "" {
			why += fmt.Sprintf("; tags: {pattern: '%s'} orders it", v.Pattern)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", terminal.Quoted(v.Tag), cmp.Or(v.Updates, "-"), cmp.Or(why, "-"))
	}
	return table.Flush()
}

// What the agent follows for a tag.
const (
	followsNothing  = "nothing: no image can have such a tag, so the agent leaves the image as it is"
	followsDigest   = "nothing: kubelet starts exactly the image of a digest, so the agent leaves it as it is"
	followsNewest   = "the newest tag: the agent replaces this placeholder"
	followsRebuilds = "rebuilds of this tag only"
	followsTag      = "this tag"

	ifConverted = "if the registry has it and the agent may write the pod manifest; else this tag"
)

// followed returns what the agent follows for an image with a tag, as agent/follow and agent/source decide it.
func followed(e tags.Explanation, s tags.Scheme) string {
	switch {
	case e.Form == tags.ClassInvalid && isDigest(e.Tag):
		return followsDigest
	case e.Form == tags.ClassInvalid:
		return followsNothing
	case release.IsPlaceholder(e.Tag):
		return followsNewest
	case e.Reason != "":
		return followsRebuilds
	case e.Form == tags.ClassShort:
		return "the intermediate tag with its digest, " + ifConverted
	}
	if floating := release.Floating(e.Tag, s); floating != e.Tag {
		return floating + ", " + ifConverted
	}
	return followsTag
}

// isDigest reports whether a text that is no tag names a digest, alone or of an image.
func isDigest(text string) bool {
	return strings.HasPrefix(text, "sha256:") || manifests.SplitReference(text).Digest != ""
}

// tagIn returns the tag of an image reference, for somebody who has given that instead of the tag; empty if there is
// none.
func tagIn(text string) string {
	if tag := manifests.SplitReference(text).Tag; !isDigest(text) && tags.Classify(tag) != tags.ClassInvalid {
		return tag
	}
	return ""
}

// schemeFlags are the settings of `repositories.tags`, as flags.
type schemeFlags struct {
	pattern, versions string
	prereleases       bool
}

func (f *schemeFlags) addTo(cmd *cobra.Command) {
	names := tags.VersionsNames()
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.pattern, "pattern", "",
		"regular expression with a group (?P<version>...), like tags.pattern of a repository")
	flags.StringVar(&f.versions, "versions", "", "kind of the versions: "+strings.Join(names, ", "))
	flags.BoolVar(&f.prereleases, "prereleases", false, "also offer pre-releases to a release")
	cli.Values(cmd, "versions", names...)
}

func (f *schemeFlags) scheme() (tags.Scheme, error) {
	s, err := tags.NewScheme(f.pattern, tags.Versions(f.versions), f.prereleases)
	if err != nil {
		return tags.Scheme{}, cli.Usage(err)
	}
	return s, nil
}

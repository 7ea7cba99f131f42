// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
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
			return a.printParsed(parsed)
		},
	})
}

func (a *app) printParsed(parsed []parsedTag) error {
	if a.output == "json" {
		return printLines(a.encoder(), parsed)
	}
	return printTags(a.out, parsed)
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
			sortTags(list)
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
It prints tags that look newer but cannot be compared to standard error, with the reason.
Without TAG arguments, it reads tags from standard input.

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
	return parseNames(names, s), nil
}

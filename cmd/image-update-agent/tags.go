// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/terminal"
	"github.com/kubic-project/image-update-agent/tags"
)

func (a *app) tagsCommand() *cobra.Command {
	var dialect string
	cmd := group("tags", "Parse and sort image tags of SUSE's three-tag scheme, and find the newest",
		a.tagsParseCommand(&dialect), a.tagsSortCommand(&dialect), a.tagsNewestCommand(&dialect))
	names := tags.DialectNames()
	cmd.PersistentFlags().StringVar(&dialect, "dialect", "core", "how the tags are spelt: "+strings.Join(names, ", "))
	cli.Values(cmd, "dialect", names...)
	return cmd
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
	return printTags(a.out, parsed)
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

func (a *app) tagsNewestCommand(dialect *string) *cobra.Command {
	var follow, updates string
	cmd := &cobra.Command{
		Use:   "newest --follow TAG [--updates CHANGE] [TAG...]",
		Short: "Show the newest tag that a policy allows for the one followed",
		Long: `newest shows the newest of the tags that a policy allows for the one followed.
Tags that look newer and are not understood are named on standard error, each
with its reason.

Exit status: 0 it is newer, 3 nothing is newer, and nothing is printed.`,
		Example: `  image-update-agent tags newest --follow 4.0.0-rev1 --updates revision \
    4.0.0-rev1 4.0.0-rev2 4.1.0-rev1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow == "" {
				return cli.Usage(fmt.Errorf("%s: --follow TAG is missing", cmd.CommandPath()))
			}
			change, err := tags.ParseChange(updates)
			if err != nil {
				return cli.Usage(fmt.Errorf("--updates: %w", err))
			}
			d, err := tags.ParseDialect(*dialect)
			if err != nil {
				return cli.Usage(err)
			}
			from, err := d.Parse(follow)
			if err != nil {
				return cli.Usage(fmt.Errorf("--follow: %w", err))
			}
			all, err := a.parseTags(cmd.Context(), args, *dialect)
			if err != nil {
				return err
			}
			newest := newestOf(all, from, change, d)
			onlySUSE(all, a.err)
			return a.printNewest(newest, from, change)
		},
	}
	cmd.Flags().StringVar(&follow, "follow", "", "the tag that is followed")
	changes := []string{"none", "rebuild", "revision", "patch", "minor", "major"}
	cmd.Flags().StringVar(&updates, "updates", "revision", "the largest change: "+strings.Join(changes, ", "))
	cli.Values(cmd, "updates", changes...)
	return a.withOutput(cmd)
}

func (a *app) printNewest(newest newestTag, from tags.Tag, largest tags.Change) error {
	for _, n := range newest.NotUnderstood {
		fmt.Fprintf(a.err, "looks newer, not understood: %s (%s)\n", terminal.Quoted(n.Tag), n.Reason)
	}
	if newest.Newest != "" {
		return a.show(newest, func() error {
			_, err := fmt.Fprintln(a.out, newest.Newest)
			return err
		})
	}
	fmt.Fprintf(a.err, "nothing newer than %s within %s\n", from, largest)
	if err := a.show(newest, func() error { return nil }); err != nil {
		return err
	}
	return cli.Exit(exitNothing)
}

// parseTags reads tags from the arguments, or from standard input where there are none.
func (a *app) parseTags(ctx context.Context, args []string, dialect string) ([]parsedTag, error) {
	d, err := tags.ParseDialect(dialect)
	if err != nil {
		return nil, cli.Usage(err)
	}
	names := args
	if len(names) == 0 {
		if names, err = await(ctx, func() ([]string, error) { return readTags(a.in) }); err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
	}
	return parseNames(names, d), nil
}

// suseTags reads the SUSE tags, and counts the others.
func (a *app) suseTags(ctx context.Context, args []string, dialect string) ([]parsedTag, error) {
	all, err := a.parseTags(ctx, args, dialect)
	return onlySUSE(all, a.err), err
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/cli"
)

func (a *app) promoteCommand() *cobra.Command {
	var s publish.Selection
	var span, start string
	var now bool
	cmd := &cobra.Command{
		Use:   "promote FROM TO [IMAGE...]",
		Short: "Give releases of one channel to another",
		Long: `promote lists releases of channel FROM in channel TO: an IMAGE is REPOSITORY:TAG, or
REPOSITORY for its newest release; the end of the repository is enough. Releases in
between are skipped. A release that fell off its page is found in earlier versions.

What was withdrawn from TO, under any tag, is skipped and named. Only REPOSITORY:TAG with
--withdrawn offers it again.

A set is promoted as a whole, with one time for all of it, or not at all: with --set, and
with --all, which adds what the sets of the newest releases have beside them. An IMAGE
of a set wants all others named, too.

With --rollout, nodes get the release one after the other: each at a time of its own
within that span. Promoted again, a release keeps the rollout that is under way, also with
the same span. Another span begins now, or at --start, and --now ends it.

Exit status: 0 published, 3 TO lists all of it so already.`,
		Example: `  image-catalog promote stage prod velum --rollout 48h --key prod.key --trust ci.pub
  image-catalog promote stage prod --set caasp-4.5.2 --out to-sign --trust ci.pub --trust prod.pub
  image-catalog promote stage prod caasp/v4/velum:4.0.0-rev2-build1.5 --dry-run
  image-catalog promote stage prod velum:4.0.0-rev1-build1.4 --withdrawn --key prod.key`,
		Args: wantArgs(true, "FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Images = args[2:]
			if err := checkSelection(s); err != nil {
				return err
			}
			if now && span != "" {
				return cli.Usage(errors.New("--now: there is --rollout"))
			}
			rollout, err := a.rollout(span, start)
			if err != nil {
				return err
			}
			return a.promote(cmd, args[0], args[1], s, rollout, !now && start == "")
		},
	}
	cmd.Flags().StringVar(&s.Set, "set", "", "all releases of this set")
	cmd.Flags().BoolVar(&s.All, "all", false, "the newest release of each image")
	cmd.Flags().BoolVar(&s.Withdrawn, "withdrawn", false, "offer again what TO has withdrawn; each IMAGE with its tag")
	cmd.Flags().StringVar(&span, "rollout", "", "spread the nodes over this time: 48h, 7d")
	cmd.Flags().StringVar(&start, "start", "", "when the rollout begins, as 2026-11-22T10:00:00Z (default: now)")
	cmd.Flags().BoolVar(&now, "now", false, "end a rollout that is under way: all nodes at once")
	return a.withOut(cmd)
}

// checkSelection checks that a selection is one.
func checkSelection(s publish.Selection) error {
	given := 0
	for _, is := range []bool{len(s.Images) > 0, s.Set != "", s.All} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return cli.Usage(errors.New("want either IMAGE..., --set NAME or --all"))
	case s.Withdrawn && len(s.Images) == 0:
		return cli.Usage(errors.New("--withdrawn: want the releases by REPOSITORY:TAG"))
	}
	return nil
}

func (a *app) promote(
	cmd *cobra.Command, from, to string, s publish.Selection, rollout *catalog.Rollout, keep bool,
) error {
	p, err := a.publisher(cmd.Context())
	if err != nil {
		return err
	}
	v, err := p.Current(cmd.Context(), from)
	if err != nil {
		return err
	}
	target, err := p.Read(cmd.Context(), to)
	if err != nil {
		return err
	}
	selected, err := p.Select(cmd.Context(), v, target, s)
	if err != nil {
		return err
	}
	changes, err := p.Promoted(cmd.Context(), selected.Changes, rollout)
	if err == nil && keep {
		changes, err = p.KeepRollouts(cmd.Context(), target, changes)
	}
	if err != nil {
		return err
	}
	return a.change(cmd.Context(), p, publish.Request{
		Channel: to, Do: catalog.ActionPromote, Changes: changes, Withdrawn: s.Withdrawn, Skipped: selected.Skipped,
	})
}

// rollout reads --rollout and --start; nil: there is none.
func (a *app) rollout(span, start string) (*catalog.Rollout, error) {
	if span == "" {
		if start != "" {
			return nil, cli.Usage(errors.New("--start: there is no --rollout"))
		}
		return nil, nil //nolint:nilnil // nil is at once
	}
	d, err := parseSpan("rollout", span)
	if err != nil {
		return nil, err
	}
	from := a.now().UTC().Truncate(time.Second)
	if start != "" {
		if from, err = time.Parse(time.RFC3339, start); err != nil {
			return nil, cli.Usage(errors.New("--start: want a time as 2026-11-22T10:00:00Z"))
		}
	}
	hours := int((d + time.Hour - 1) / time.Hour)
	if hours > 366*24 {
		return nil, cli.Usage(errors.New("--rollout: at most 366 days"))
	}
	return &catalog.Rollout{From: from.UTC(), Hours: hours}, nil
}

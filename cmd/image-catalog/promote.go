// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

func (a *app) promoteCommand() *cobra.Command {
	var s publish.Selection
	var span, start string
	cmd := &cobra.Command{
		Use:   "promote FROM TO [IMAGE...]",
		Short: "Give releases of one channel to another",
		Long: `promote lists releases of channel FROM in channel TO: an IMAGE is REPOSITORY:TAG, or
REPOSITORY for its newest release; the end of the repository is enough. Releases in
between are skipped. A release that was withdrawn from TO is offered again.

With --rollout, nodes get the release one after the other: each at a time of its own
within that span. Promote again without it to end it, or with another one to slow it
down.

Exit status: 0 published, 3 TO lists all of it so already.`,
		Example: `  image-catalog promote stage prod velum --rollout 48h --key prod.key --trust ci.pub
  image-catalog promote stage prod --set caasp-4.5.2 --out to-sign --trust ci.pub --trust prod.pub
  image-catalog promote stage prod caasp/v4/velum:4.0.0-rev2-build1.5 --dry-run`,
		Args: wantArgs(true, "FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Images = args[2:]
			given := 0
			for _, is := range []bool{len(s.Images) > 0, s.Set != "", s.All} {
				if is {
					given++
				}
			}
			if given != 1 {
				return usageError{errors.New("want either IMAGE..., --set NAME or --all")}
			}
			rollout, err := a.rollout(span, start)
			if err != nil {
				return err
			}
			return a.promote(cmd, args[0], args[1], s, rollout)
		},
	}
	cmd.Flags().StringVar(&s.Set, "set", "", "all releases of this set")
	cmd.Flags().BoolVar(&s.All, "all", false, "the newest release of each image")
	cmd.Flags().StringVar(&span, "rollout", "", "spread the nodes over this time: 48h, 7d")
	cmd.Flags().StringVar(&start, "start", "", "when the rollout begins, as 2026-11-22T10:00:00Z (default: now)")
	return a.withOut(cmd)
}

func (a *app) promote(
	cmd *cobra.Command, from, to string, s publish.Selection, rollout *catalog.Rollout,
) error {
	p, err := a.publisher(cmd.Context())
	if err != nil {
		return err
	}
	v, err := p.Read(cmd.Context(), from)
	if err != nil {
		return err
	}
	selected, err := p.Select(cmd.Context(), v, s)
	if err != nil {
		return err
	}
	changes, err := p.Promoted(cmd.Context(), selected, rollout)
	if err != nil {
		return err
	}
	return a.change(cmd.Context(), p, publish.Request{Channel: to, Do: catalog.ActionPromote, Changes: changes})
}

// rollout reads --rollout and --start; nil: there is none.
func (a *app) rollout(span, start string) (*catalog.Rollout, error) {
	if span == "" {
		if start != "" {
			return nil, usageError{errors.New("--start: there is no --rollout")}
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
			return nil, usageError{errors.New("--start: want a time as 2026-11-22T10:00:00Z")}
		}
	}
	hours := int((d + time.Hour - 1) / time.Hour)
	if hours > 366*24 {
		return nil, usageError{errors.New("--rollout: at most 366 days")}
	}
	return &catalog.Rollout{From: from.UTC(), Hours: hours}, nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// rolling is one rollout of `rollout --output json`.
type rolling struct {
	Image  string    `json:"image"`
	Tag    string    `json:"tag"`
	Set    string    `json:"set,omitempty"`
	From   time.Time `json:"from"`
	Hours  int       `json:"hours"`
	Paused bool      `json:"paused"`
	Share  int       `json:"share"` // of the time that has gone, in percent
}

const rolloutLong = `rollout shows the rollouts of a channel that are under way, with the share of their time that
has gone. With a flag it changes them: those of the images, those of a set, or all.

A node has a fixed place in a rollout. --pause holds all nodes whose time has not come.
--resume continues where the pause began. --over makes a rollout longer or shorter: the
share of the time that has gone stays. --now ends it, and all remaining nodes may apply.

--watch asks a Prometheus each minute until the rollouts are over, and pauses them if more than
--max-failed nodes have failed or are lost (see fleet), or if for 5 minutes Prometheus has no
complete answer, or no node reports. It also pauses them if it is interrupted.

Exit status: 0 shown or published, 3 there is no such rollout, or nothing to change,
1 the watch has paused it.`

const rolloutExample = `  image-catalog rollout prod
  image-catalog rollout prod velum --pause --reason "bsc#1199876?" --key prod.key
  image-catalog rollout prod --set caasp-4.5.2 --resume --over 96h --key prod.key
  image-catalog rollout prod velum --watch --prometheus https://prometheus.example.com --key prod.key`

func (a *app) rolloutCommand() *cobra.Command {
	var s publish.Selection
	var steer publish.Steer
	var over string
	w := watch{app: a}
	cmd := &cobra.Command{
		Use:   "rollout CHANNEL [IMAGE...]",
		Short: "Show, pause, resume or change rollouts",
		Long:  rolloutLong, Example: rolloutExample,
		Args: wantArgs(true, "CHANNEL"),
	}
	reason := cmd.Flags().String("reason", "", "why, for the log")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s.Images = args[1:]
		if len(s.Images) > 0 && s.Set != "" {
			return cli.Usage(errors.New("want either IMAGE... or --set NAME"))
		}
		if err := errors.Join(exclusive(cmd, "pause", "resume", "now"), exclusive(cmd, "now", "resume", "over")); err != nil {
			return err
		}
		if over != "" {
			var err error
			if steer.Hours, err = hours("over", over); err != nil {
				return err
			}
		}
		if err := w.check(cmd, steer); err != nil {
			return err
		}
		if w.on {
			return w.run(cmd.Context(), args[0], s)
		}
		return a.steer(cmd, args[0], s, steer, *reason)
	}
	cmd.Flags().StringVar(&s.Set, "set", "", "the rollout of this set")
	cmd.Flags().BoolVar(&steer.Pause, "pause", false, "hold the nodes whose time has not come")
	cmd.Flags().BoolVar(&steer.Resume, "resume", false, "continue a paused rollout")
	cmd.Flags().StringVar(&over, "over", "", "the new length: 96h, 7d")
	cmd.Flags().BoolVar(&steer.Now, "now", false, "end the rollout: all nodes at once")
	w.define(cmd)
	a.withPrometheus(cmd)
	return a.withOut(cmd)
}

func (a *app) steer(
	cmd *cobra.Command, channel string, s publish.Selection, steer publish.Steer, reason string,
) error {
	p, err := a.publisher(cmd.Context())
	if err != nil {
		return err
	}
	if steer != (publish.Steer{}) {
		return a.change(cmd.Context(), p, channel, publish.Roll(s, steer), publish.How{Reason: reason})
	}
	v, err := a.offer(cmd.Context(), p, channel)
	if err != nil {
		return err
	}
	all, err := v.Rolling(cmd.Context(), s)
	if err != nil {
		return err
	}
	list := []rolling{}
	for _, c := range all {
		list = append(list, rollingOf(c, a.now()))
	}
	err = a.print(list, func(page *terminal.Page) { writeRolling(page, list) })
	if err == nil && len(list) == 0 {
		return cli.Exit(exitNothing)
	}
	return err
}

func rollingOf(c catalog.Change, now time.Time) rolling {
	o := *c.Release.Rollout
	out := rolling{
		Image: c.Image, Tag: c.Release.Tag, Set: c.Release.Set, From: o.From, Hours: o.Hours,
		Paused: o.Paused != nil, Share: o.Share(now),
	}
	if o.Paused != nil {
		out.From = o.Paused.From
	}
	return out
}

func writeRolling(page *terminal.Page, list []rolling) {
	if len(list) == 0 {
		page.Line("No rollout is under way.")
		return
	}
	rows := [][]string{{"IMAGE", "TAG", "SET", "FROM", "LENGTH", "GONE"}}
	for _, r := range list {
		gone := fmt.Sprintf("%d %%", r.Share)
		if r.Paused {
			gone += ", paused"
		}
		rows = append(rows, []string{r.Image, r.Tag, r.Set, page.Clock(r.From), fmt.Sprintf("%d h", r.Hours), gone})
	}
	page.Rows(rows)
}

// hours reads the length of a rollout.
func hours(flag, text string) (int, error) {
	d, err := span(flag, text)
	if err != nil {
		return 0, err
	}
	n := int((d + time.Hour - 1) / time.Hour)
	if n > catalog.MaxHours {
		return 0, cli.Usage(fmt.Errorf("--%s %s: want at most %d days", flag, text, catalog.MaxHours/24))
	}
	return n, nil
}

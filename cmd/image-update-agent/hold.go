// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/window"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/node/config"
)

func (a *app) holdCommand() *cobra.Command {
	var req api.HoldRequest
	var end string
	cmd := &cobra.Command{
		Use:   "hold {IMAGE... | --all}",
		Short: "Block updates of images until a date, or until resume",
		Long: `hold blocks updates of the named images, or of all images: the agent still stages and
offers them, but does not apply them, and apply prints the reason. An IMAGE is named as
for apply. A new hold on an image replaces the old one.

hold does not stop kubelet: with the pull policy Always, kubelet pulls a rebuild whenever
it starts a container.

Exit status: 0 held, 1 failed, 2 unknown image or invalid date.`,
		Example: `  image-update-agent hold velum --until 2026-12-24 --reason "no changes before the holidays"
  image-update-agent hold --all --until 72h
  image-update-agent hold private.yaml --until 7d --output json`,
		Args:              namesOrAll("IMAGE", &req.All),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			req.Images = args
			if req.Until, err = window.ParseEnd(end, time.Now()); err != nil {
				return cli.Usage(fmt.Errorf("--until %w", err))
			}
			if err := config.CheckReason(req.Reason); req.Reason != "" && err != nil {
				return cli.Usage(fmt.Errorf("--reason: %w", err))
			}
			daemon, err := a.daemonClient()
			if err != nil {
				return err
			}
			held, err := daemon.Hold(cmd.Context(), req)
			if err != nil {
				return err
			}
			view := statuspage.NewHeld(held, req.Reason, req.Until)
			return a.show(view, func() error { return view.Write(a.out, a.zone) })
		},
	}
	cmd.Flags().StringVar(&end, "until", "",
		"end of the hold: a date (2026-12-24, 2026-12-24T18:00:00+01:00) or a duration (12h, 7d); default: until resume")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "reason that status shows")
	allFlag(cmd, &req.All, "hold every image, including future ones")
	return a.withQuiet(a.withOutput(cmd))
}

func (a *app) resumeCommand() *cobra.Command {
	var req api.ResumeRequest
	cmd := &cobra.Command{
		Use:   "resume {IMAGE... | --all}",
		Short: "Remove holds", SuggestFor: []string{"unhold", "release"},
		Long: `resume removes the holds on the named images, or with --all every hold. A hold of the
configuration ends when you remove it there.

Exit status: 0 removed, 1 failed, 2 unknown image, 3 there was no such hold.`,
		Example: `  image-update-agent resume velum
  image-update-agent resume --all`,
		Args:              namesOrAll("IMAGE", &req.All),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			daemon, err := a.daemonClient()
			if err != nil {
				return err
			}
			req.Images = args
			held, err := daemon.Resume(cmd.Context(), req)
			if err != nil {
				return err
			}
			view := statuspage.NewUnheld(held)
			if err := a.show(view, func() error { return view.Write(a.out) }); err != nil || len(held) > 0 {
				return err
			}
			return cli.Exit(exitNothing)
		},
	}
	allFlag(cmd, &req.All, "remove every hold")
	return a.withQuiet(a.withOutput(cmd))
}

func allFlag(cmd *cobra.Command, all *bool, usage string) {
	cmd.Flags().BoolVar(all, "all", false, usage)
}

// namesOrAll wants one of the two. No names must not mean all: an empty variable of a
// script would then hold the node.
func namesOrAll(what string, all *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case *all && len(args) > 0:
			return cli.Usage(fmt.Errorf("%s: give %s or --all, not both", cmd.CommandPath(), what))
		case !*all && len(args) == 0:
			return cli.Usage(fmt.Errorf("%s: %s or --all is required", cmd.CommandPath(), what))
		}
		return nil
	}
}

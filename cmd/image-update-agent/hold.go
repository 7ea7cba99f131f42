// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
)

func (a *app) holdCommand() *cobra.Command {
	var req api.HoldRequest
	var end string
	cmd := &cobra.Command{
		Use:   "hold {IMAGE... | --all}",
		Short: "Keep images from being applied until a time, or until unhold",
		Long: `hold keeps what is offered for the named images, or for all, from being applied:
apply then gives the reason. It is staged and offered as before. An IMAGE is
named as for apply. Another hold on an image takes the place of the first.

With the pull policy Always, kubelet takes a rebuild by itself whenever it starts
a container; a hold does not keep it from that.

Exit status: 0 held, 1 it did not work, 2 unknown image or wrong time.`,
		Example: `  image-update-agent hold velum --until 2026-12-24 --reason "no changes before the holidays"
  image-update-agent hold --all --until 72h
  image-update-agent hold private.yaml --until 7d --output json`,
		Args:              namesOrAll("IMAGE", &req.All),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			req.Images = args
			if req.Until, err = config.ParseEnd(end, time.Now()); err != nil {
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
		"the end of the hold: 2026-12-24, 2026-12-24T18:00:00+01:00, or from now: 12h, 7d; without it there is none")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "why, for those who read the status")
	allFlag(cmd, &req.All, "hold every image")
	return a.withOutput(cmd)
}

func (a *app) unholdCommand() *cobra.Command {
	var req api.UnholdRequest
	cmd := &cobra.Command{
		Use:   "unhold {IMAGE... | --all}",
		Short: "Take back what hold did",
		Long: `unhold takes back the holds on the named images; --all takes back every one. A
hold of the configuration ends there.

Exit status: 0 taken back, 1 it did not work, 2 unknown image, 3 nothing of it
was held.`,
		Example: `  image-update-agent unhold velum
  image-update-agent unhold --all`,
		Args:              namesOrAll("IMAGE", &req.All),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			daemon, err := a.daemonClient()
			if err != nil {
				return err
			}
			req.Images = args
			held, err := daemon.Unhold(cmd.Context(), req)
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
	allFlag(cmd, &req.All, "take back every hold")
	return a.withOutput(cmd)
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
			return cli.Usage(fmt.Errorf("%s: %s and --all exclude each other", cmd.CommandPath(), what))
		case !*all && len(args) == 0:
			return cli.Usage(fmt.Errorf("%s: %s or --all is missing", cmd.CommandPath(), what))
		}
		return nil
	}
}

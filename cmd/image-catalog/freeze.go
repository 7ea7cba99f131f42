// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/window"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

func (a *app) freezeCommand() *cobra.Command {
	var until, reason string
	cmd := &cobra.Command{
		Use:   "freeze CHANNEL --until TIME",
		Short: "Refuse to add and promote to a channel until a time",
		Long: `freeze has add and promote refuse to change a channel until a time. withdraw, refresh,
promote --revert and rollout --pause still work. Nodes do not see a freeze: they go on with
what the channel offers. A change that another publisher asked for at the same time may still
arrive, and the result names it.`,
		Example: `  image-catalog freeze prod --until 2026-12-28 --reason "holidays" --key prod.key
  image-catalog freeze prod --until 8h --key prod.key`,
		Args: wantArgs(false, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if until == "" {
				return cli.Usage(errors.New("--until TIME is missing, for example " + window.Moments))
			}
			end, err := a.end("until", until)
			if err != nil {
				return err
			}
			return a.freeze(cmd, args[0], end, reason)
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "when the freeze ends: "+window.Moments)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the log")
	return a.withOut(cmd)
}

func (a *app) unfreezeCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "unfreeze CHANNEL",
		Short:   "End a freeze",
		Long:    "unfreeze ends a freeze before its time.\n\nExit status: 0 published, 3 the channel was not frozen.",
		Example: "  image-catalog unfreeze prod --key prod.key",
		Args:    wantArgs(false, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.freeze(cmd, args[0], time.Time{}, reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the log")
	return a.withOut(cmd)
}

func (a *app) freeze(cmd *cobra.Command, channel string, until time.Time, reason string) error {
	p, err := a.publisher(cmd.Context())
	if err != nil {
		return err
	}
	return a.change(cmd.Context(), p, channel, publish.Freeze(until), publish.How{Reason: reason})
}

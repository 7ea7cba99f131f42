// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

func (a *app) checkCommand() *cobra.Command {
	return a.withQuiet(a.waits.addTo(a.withOutput(&cobra.Command{
		Use:   "check",
		Short: "Ask the registries now, and show the status",
		Long: `check makes the daemon ask every registry now, stage new releases and show the status. It
also works while polling is turned off. If you interrupt check, or --timeout passes, the
daemon finishes the check without the command.

Exit status: 0 the state is current, staged or applying, 1 it is failed, stale or
unchecked, 4 it is held, 5 timed out. The status is shown in each case but the last.`,
		Example: `  image-update-agent check
  image-update-agent check --timeout 5m
  image-update-agent check --quiet && image-update-agent apply     only if nothing blocks it
  image-update-agent check --output json | jq '.images[] | select(.offered)'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.poll(cmd.Context(), (*api.Client).Check) },
	})))
}

// poll has the daemon poll, and shows the status.
func (a *app) poll(
	ctx context.Context, do func(*api.Client, context.Context, func(status.Progress)) (*status.Status, error),
) error {
	daemon, err := a.daemonClient()
	if err != nil {
		return err
	}
	ctx, end, err := a.waits.limit(ctx)
	if err != nil {
		return err
	}
	defer end()
	bar := a.progress()
	s, err := do(daemon, ctx, bar.Show)
	bar.End()
	if s != nil {
		if perr := a.printStatus(*s); perr != nil {
			return perr
		}
	}
	if err != nil {
		return leave(ctx, err)
	}
	return endOf(s.State)
}

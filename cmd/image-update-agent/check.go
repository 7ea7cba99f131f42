// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
)

func (a *app) checkCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "check",
		Short: "Ask the running daemon to poll now, and show what it found",
		Long: `check has the running daemon ask every source now, tag lists included, stage
what is new, and show the result. It works with polling turned off, too.

Exit status: 0 the node is current, staged or applying, 1 it is failed, stale
or unchecked, 4 held. What it found is shown all the same.`,
		Example: `  image-update-agent check
  image-update-agent check && image-update-agent apply     only where nothing stands in the way
  image-update-agent check --output json | jq '.images[] | select(.offered)'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.poll(cmd.Context(), (*api.Client).Check) },
	})
}

// poll has the daemon poll, and shows the status.
func (a *app) poll(
	ctx context.Context, do func(*api.Client, context.Context, func(status.Progress)) (*status.Status, error),
) error {
	daemon, err := a.daemonClient()
	if err != nil {
		return err
	}
	bar := statuspage.NewProgress(a.files.err)
	s, err := do(daemon, ctx, bar.Show)
	bar.End()
	if s != nil {
		if perr := a.printStatus(*s); perr != nil {
			return perr
		}
	}
	if err != nil {
		return err
	}
	return endOf(s.State)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
)

func (a *app) historyCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "history",
		Short: "Show what was applied, rolled back, adopted, or failed; when, and by whom",
		Long: `history shows what became of the last applies and rollbacks, and what kubelet took
by itself: a line for each container whose release changed, the newest first, at
most 50. It is kept over restarts of the daemon and of the node. Without a daemon
it shows what the last status has.

Exit status: 0 shown, 1 it cannot be read.`,
		Example: `  image-update-agent history
  image-update-agent history --output json | jq '.[] | select(.result == "failed")'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.currentStatus(cmd.Context())
			if err != nil {
				return err
			}
			entries := append([]status.HistoryEntry{}, s.History...) // an older daemon has none
			return a.show(entries, func() error { return statuspage.History(a.page(), entries) })
		},
	})
}

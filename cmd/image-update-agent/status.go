// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

func (a *app) statusCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "status",
		Short: "Show what runs, what is offered, and why not more",
		Long: `status shows the node as the daemon knows it. Without a daemon it shows the last
status that was written, and how old it is.`,
		Example: `  image-update-agent status
  image-update-agent status --output json | jq -r .state`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := a.settings()
			if err != nil {
				return err
			}
			s, err := api.NewClient(settings.socket("status.sock")).Status(cmd.Context())
			if errors.Is(err, api.ErrNoDaemon) {
				var last error
				switch s, last = settings.lastStatus(); {
				case errors.Is(last, fs.ErrNotExist):
					return fmt.Errorf("%w; and none has left a status", err)
				case last != nil:
					return fmt.Errorf("%w; its last status: %w", err, last)
				}
				fmt.Fprintf(a.err, "no daemon answers; this is the status of %s (%s)\n",
					terminal.Clock(s.Written, a.zone), terminal.Ago(time.Since(s.Written)))
				a.away = true
			} else if err != nil {
				return err
			}
			return a.printStatus(s)
		},
	})
}

// printStatus writes a status as the user asked for it.
func (a *app) printStatus(s status.Status) error {
	return a.show(s, func() error { return statuspage.Status(a.page(), s, a.away) })
}

func (a *app) page() *terminal.Page { return terminal.NewPage(a.files.out, time.Now().In(a.zone)) }

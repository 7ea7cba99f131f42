// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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
			s, err := a.currentStatus(cmd.Context())
			if err != nil {
				return err
			}
			return a.printStatus(s)
		},
	})
}

// currentStatus asks the daemon for its status. Without a daemon it is the last one that was written.
func (a *app) currentStatus(ctx context.Context) (status.Status, error) {
	settings, err := a.settings()
	if err != nil {
		return status.Status{}, err
	}
	s, err := api.NewClient(settings.socket("status.sock")).Status(ctx)
	if !errors.Is(err, api.ErrNoDaemon) {
		return s, err
	}
	switch last, lastErr := settings.lastStatus(); {
	case errors.Is(lastErr, fs.ErrNotExist):
		return s, fmt.Errorf("%w; and none has left a status", err)
	case lastErr != nil:
		return s, fmt.Errorf("%w; its last status: %w", err, lastErr)
	default:
		fmt.Fprintf(a.err, "no daemon answers; this is the status of %s (%s)\n",
			terminal.Clock(last.Written, a.zone), terminal.Ago(time.Since(last.Written)))
		a.away = true
		return last, nil
	}
}

// printStatus writes a status as the user asked for it.
func (a *app) printStatus(s status.Status) error {
	return a.show(s, func() error { return statuspage.Status(a.page(), s, a.away) })
}

func (a *app) page() *terminal.Page { return terminal.NewPage(a.files.out, time.Now().In(a.zone)) }

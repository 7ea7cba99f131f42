// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

func (a *app) statusCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "status",
		Short: "Show what runs, what is offered, and why not more",
		Long: `status shows the node as the daemon knows it. Without a daemon it shows the last
status that was written, and how old it is. Where the configuration is not valid, with
which the daemon neither starts nor reloads, it shows also file and line, and its exit
status is 2.`,
		Example: `  image-update-agent status
  image-update-agent status --output json | jq -r .state`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.currentStatus(cmd.Context())
			invalid, is := errors.AsType[configError](err)
			switch {
			case !is && err != nil, is && s.SchemaVersion == 0:
				return err
			case !is:
				return a.printStatus(s)
			case a.output == "json":
				return errors.Join(a.printStatus(s), invalid)
			}
			fmt.Fprintln(a.out, "Configuration is not valid; the daemon neither starts nor reloads with it:")
			for line := range strings.Lines(invalid.Error()) {
				fmt.Fprintln(a.out, "  "+strings.TrimSuffix(line, "\n"))
			}
			fmt.Fprintln(a.out)
			if err := a.printStatus(s); err != nil {
				return err
			}
			return cli.Exit(exitUsage)
		},
	})
}

// currentStatus asks the daemon for its status. Without a daemon it is the last one that was written. A configuration
// that is not valid is an error beside it.
func (a *app) currentStatus(ctx context.Context) (status.Status, error) {
	s, invalid := a.settings()
	if isConfig(invalid) {
		s.StateDir, s.RuntimeDir = config.Directories(a.sources())
		shown, err := a.statusBelow(ctx, s)
		if err != nil { // the configuration is what a person has to mend first
			return status.Status{}, invalid
		}
		return shown, invalid
	}
	if invalid != nil {
		return status.Status{}, invalid
	}
	return a.statusBelow(ctx, s)
}

// statusBelow is currentStatus for these settings.
func (a *app) statusBelow(ctx context.Context, settings settings) (status.Status, error) {
	// Other users can crowd the status socket, and not root's own.
	if s, err := api.NewClient(settings.socket("agent.sock")).Status(ctx); err == nil {
		return s, nil
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

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
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/internal/node/podfiles"
)

func (a *app) statusCommand() *cobra.Command {
	watch := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is running, what is available, and what blocks the rest",
		Long: `status shows the state of the node, each image with the running and the available
release, and what blocks an update. If the daemon does not run, status shows the last
status that the daemon wrote, and its age.

With --watch it shows the status again whenever the daemon reports a change, until
Ctrl-C; with --output json it prints one JSON object a line.

Exit status: 0 shown, 1 the status cannot be read, 2 the configuration is not valid (the
file and the line are shown, too).`,
		Example: `  image-update-agent status
  image-update-agent status --watch
  image-update-agent status --output json | jq -r .state
  image-update-agent status --watch --output json | jq -r .state`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return a.watchStatus(cmd.Context())
			}
			s, err := a.currentStatus(cmd.Context())
			invalid := a.invalid
			a.invalid = nil // it is part of the answer
			switch {
			case err != nil:
				return err
			case invalid == nil:
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
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the status again at each change, until Ctrl-C")
	return a.withOutput(cmd)
}

// currentStatus asks the daemon for its status. Without a daemon it is the last one that was written.
func (a *app) currentStatus(ctx context.Context) (status.Status, error) {
	s, err := a.daemonSettings()
	if err != nil {
		return status.Status{}, err
	}
	shown, err := a.statusBelow(ctx, s)
	if err != nil && a.invalid != nil { // the configuration is what a person has to mend first
		err = a.invalid
	}
	return shown, err
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
		return s, fmt.Errorf("%w; and no daemon has written a status", err)
	case lastErr != nil:
		return s, fmt.Errorf("%w; its last status: %w", err, lastErr)
	default:
		fmt.Fprintf(a.err, "no daemon answers; this is the status of %s (%s)\n",
			terminal.Clock(last.Written, a.zone), terminal.Ago(time.Since(last.Written)))
		a.away = true
		if dir, _ := a.podManifests(); dir != "" {
			a.aside, _ = podfiles.New(podfiles.Dirs{PodManifests: dir}).Aside(ctx) // not root: not known
		}
		return last, nil
	}
}

// printStatus writes a status as the user asked for it.
func (a *app) printStatus(s status.Status) error {
	return a.show(s, func() error { return statuspage.Status(a.page(), s, a.away, a.aside...) })
}

func (a *app) page() *terminal.Page { return terminal.NewPage(a.files.out, time.Now().In(a.zone)) }

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/hook"
)

// saltCall is where Salt's packages have it, or a symlink to it.
const saltCall = "usr/bin/salt-call"

// hookCommand is for the unit, and hidden: by hand, systemctl start does the same.
func (a *app) hookCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hook",
		Short: "Run the hooks of the configuration for a change",
		Long: `hook runs what the setting hooks names: salt-call, so that Salt's minion reads its
grains again or its master gets an event, and the admin's program, which gets on standard input what has changed
since it last succeeded. Where nothing is configured, or nothing has changed, it runs
nothing.

The service image-update-agent-hook.service runs it, as root and beside the daemon,
whenever image-update-agent-hook.path sees a change. The daemon does not wait for it.`,
		Example: `  systemctl start image-update-agent-hook.service`,
		Hidden:  true,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.acts.Store(true)
			s, err := a.settings()
			if err != nil {
				// The due file is removed all the same, or the path unit would start this again
				// at once, for ever.
				return errors.Join(err, hook.New("", filepath.Join(a.root, hook.UnitDir)).Take())
			}
			if err := s.outbox().Take(); err != nil {
				return err
			}
			if !s.Hooks.Configured() {
				return nil
			}
			return hook.Runner{
				Outbox: s.outbox(), Refresh: s.Hooks.SaltRefresh, Event: s.Hooks.SaltEvent, SaltCall: s.saltCall(a),
				Exec: s.hookProgram(a), Log: logger(a.err, s.Log),
			}.Run(cmd.Context())
		},
	}
}

// outbox is where the daemon leaves announcements for hooks.
func (s settings) outbox() *hook.Outbox { return hook.New(s.StateDir, s.RuntimeDir) }

// announce is how a status is announced: without hooks no service is started.
func (s settings) announce() func(context.Context, status.Status) error {
	if s.Hooks.Configured() {
		return s.outbox().Announce
	}
	return s.outbox().Note
}

func (s settings) saltCall(a *app) hook.Program {
	return hook.Program{
		Root: s.root, Path: filepath.Join(s.root, saltCall), Output: a.files.err, Timeout: s.Hooks.Timeout,
	}
}

func (s settings) hookProgram(a *app) hook.Program {
	return hook.Program{Root: s.root, Path: s.Hooks.Exec, Output: a.files.err, Timeout: s.Hooks.Timeout}
}

// saltIsDue requests a run of the hooks, as Salt's minion has something to read.
func (s settings) saltIsDue(ctx context.Context, log *slog.Logger) {
	if !s.Hooks.SaltRefresh {
		return
	}
	if err := s.outbox().Due(ctx); err != nil {
		log.WarnContext(ctx, "change not announced to hooks", "err", err)
	}
}

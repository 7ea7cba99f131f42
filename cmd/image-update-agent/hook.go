// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/status"
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
grains again, and the admin's program, which gets on standard input what has changed
since it last succeeded. Where nothing is configured, or nothing has changed, it runs
nothing.

The service image-update-agent-hook.service runs it, as root and beside the daemon,
whenever image-update-agent-hook.path sees a change. The daemon does not wait for it.`,
		Example: `  systemctl start image-update-agent-hook.service`,
		Hidden:  true,
		Args:    noArgs,
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
			return a.runHooks(cmd.Context(), s, logger(a.err, s.Log))
		},
	}
}

// runHooks runs both, also where one fails.
func (a *app) runHooks(ctx context.Context, s settings, log *slog.Logger) error {
	var salt, program error
	if s.Hooks.SaltRefresh {
		if salt = s.saltRefresh(a).Run(ctx); salt == nil {
			log.InfoContext(ctx, "grains refreshed")
		}
	}
	if s.Hooks.Exec != "" {
		program = a.runProgram(ctx, s, log)
	}
	return errors.Join(salt, program)
}

// runProgram gives the change to the admin's program. It is delivered when that has
// succeeded.
func (a *app) runProgram(ctx context.Context, s settings, log *slog.Logger) error {
	change, delivered, err := s.outbox().Change()
	if err != nil || change.Empty() {
		return err
	}
	program := s.hookProgram(a)
	if program.Input, err = json.Marshal(change); err != nil {
		return err
	}
	program.Input = append(program.Input, '\n')
	if err := program.Run(ctx); err != nil {
		return err
	}
	log.InfoContext(ctx, "change delivered", "program", s.Hooks.Exec, "state", change.State, "was", change.Was,
		"offered", len(change.Offered), "staged", len(change.Staged), "applied", len(change.Applied),
		"failed", len(change.Failed))
	return delivered()
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

func (s settings) saltRefresh(a *app) hook.Program {
	return hook.Program{
		Root: s.root, Path: filepath.Join(s.root, saltCall), Args: []string{"saltutil.refresh_grains"},
		Output: a.files.err, Timeout: s.Hooks.Timeout,
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

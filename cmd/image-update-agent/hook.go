// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/hook"
)

// saltCall is where Salt's packages have it, or a symlink to it.
const saltCall = "usr/bin/salt-call"

// hookCommand is for the unit, and hidden: by hand, systemctl start does the same.
func (a *app) hookCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hook",
		Short: "Run what the configuration wants run for a change",
		Long: `hook runs what hooks of the configuration names: salt-call, so that Salt's minion
reads its grains again, and the admin's program, which gets on its standard input
what has changed since it has last ended well. Where nothing is configured, or
nothing has changed, nothing is run.

The service image-update-agent-hook.service runs it, as root and beside the
daemon, whenever image-update-agent-hook.path sees that there is something to
tell. The daemon neither waits for it nor hears of it.`,
		Example: `  systemctl start image-update-agent-hook.service`,
		Hidden:  true,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.acts.Store(true)
			s, err := a.settings()
			if err != nil {
				// What is due is taken away all the same, or the path unit would begin anew
				// at once, for ever.
				return errors.Join(err, hook.New("", filepath.Join(a.root, hook.UnitDir)).Take())
			}
			if err := s.desk().Take(); err != nil {
				return err
			}
			if !s.Hooks.Configured() {
				return nil
			}
			return a.runHooks(cmd.Context(), s, logger(a.err, s.Log))
		},
	}
}

// runHooks runs both; one that does not work does not keep the other from being
// run.
func (a *app) runHooks(ctx context.Context, s settings, log *slog.Logger) error {
	var salt, told error
	if s.Hooks.SaltRefresh {
		if salt = s.saltRefresh(a).Run(ctx); salt == nil {
			log.InfoContext(ctx, "grains refreshed")
		}
	}
	if s.Hooks.Exec != "" {
		told = a.tell(ctx, s, log)
	}
	return errors.Join(salt, told)
}

// tell hands the change to the admin's program. It counts as told when that has
// ended well.
func (a *app) tell(ctx context.Context, s settings, log *slog.Logger) error {
	change, told, err := s.desk().Change()
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
	log.InfoContext(ctx, "change told", "program", s.Hooks.Exec, "state", change.State, "was", change.Was,
		"offered", len(change.Offered), "staged", len(change.Staged), "applied", len(change.Applied),
		"failed", len(change.Failed))
	return told()
}

// desk is where the daemon leaves word for hooks.
func (s settings) desk() *hook.Desk { return hook.New(s.StateDir, s.RuntimeDir) }

// leave is how word is left: without hooks no service is started for nothing.
func (s settings) leave() func(context.Context, agent.Status) error {
	if s.Hooks.Configured() {
		return s.desk().Announce
	}
	return s.desk().Note
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

// telling publishes a status, and leaves word for hooks. These are no reason for
// the daemon to fail.
type telling struct {
	agent.Recorder
	leave func(context.Context, agent.Status) error
	log   *slog.Logger
}

func (t telling) Publish(ctx context.Context, s agent.Status) error {
	err := t.Recorder.Publish(ctx, s)
	if left := t.leave(ctx, s); left != nil {
		t.log.WarnContext(ctx, "no word left for hooks", "err", left)
	}
	return err
}

// saltIsDue asks for a hook, as Salt's minion has something to read.
func (s settings) saltIsDue(ctx context.Context, log *slog.Logger) {
	if !s.Hooks.SaltRefresh {
		return
	}
	if err := s.desk().Due(ctx); err != nil {
		log.WarnContext(ctx, "no word left for hooks", "err", err)
	}
}

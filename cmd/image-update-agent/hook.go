// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/hook"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// saltCall is where Salt's packages have it, or a symlink to it.
const saltCall = "usr/bin/salt-call"

// hookCommand is for the unit, and hidden: by hand, systemctl start does the same.
func (a *app) hookCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hook",
		Short: "Run the configured hooks after a change",
		Long: `hook runs the configured hooks: salt-call, so that the Salt minion reads its grains again
or sends an event to its master; the program of the administrator, which gets the changes
since its last success on standard input; and webhooks, which get the same. If nothing is
configured or nothing has changed, it runs nothing.

image-update-agent-hook.service runs hook as root, beside the daemon, whenever
image-update-agent-hook.path notices a change. The daemon does not wait for it.`,
		Example: `  systemctl start image-update-agent-hook.service`,
		Hidden:  true,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.acts.Store(true)
			s, err := a.settings()
			if err != nil {
				// The due file is removed all the same, or the path unit would start this again
				// at once, for ever.
				_, errTake := hook.New("", filepath.Join(a.root, hook.UnitDir)).Take()
				return errors.Join(err, errTake)
			}
			requested, err := s.outbox().Take()
			if err != nil {
				return err
			}
			if !s.Hooks.Configured() {
				return nil
			}
			log := logger(a.err, s.Log)
			return hook.Runner{
				Outbox: s.outbox(), Node: s.name(), Refresh: s.Hooks.SaltRefresh, Event: s.Hooks.SaltEvent,
				SaltCall: s.saltCall(a), Exec: s.hookProgram(a), Webhooks: s.webhooks(log), ByHand: !requested, Log: log,
			}.Run(cmd.Context())
		},
	}
}

// outbox is where the daemon leaves announcements for hooks.
func (s settings) outbox() *hook.Outbox {
	var consumers []string
	if s.Hooks.HasPrograms() {
		consumers = append(consumers, hook.Programs)
	}
	for _, h := range s.Hooks.Webhooks {
		consumers = append(consumers, h.Name)
	}
	return hook.New(s.StateDir, s.RuntimeDir, consumers...)
}

// name is that of the node for people.
func (s settings) name() string {
	if s.NodeName != "" {
		return s.NodeName
	}
	name, _ := os.Hostname()
	return name
}

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

func (s settings) webhooks(log *slog.Logger) []hook.Webhook {
	roots, proxies := hosts.NewTrust(s.root, os.Getenv, log), hosts.NewProxies(s.root, os.Getenv)
	var all []hook.Webhook
	for _, h := range s.Hooks.Webhooks {
		all = append(all, hook.Webhook{
			Name: h.Name, URL: h.URL, URLFile: h.URLFile, CheckURL: config.CheckWebhookURL, TokenFile: h.TokenFile, CA: h.CA,
			Format: hook.Format(h.Format), Events: h.Events, Roots: roots.Roots, Proxy: proxies.For, Version: version,
			Timeout: s.Hooks.Timeout,
		})
	}
	return all
}

// saltIsDue requests a run of the hooks, as Salt's minion has something to read.
func (s settings) saltIsDue(ctx context.Context, log *slog.Logger) {
	if !s.Hooks.SaltRefresh {
		return
	}
	if err := s.outbox().Due(ctx); err != nil {
		log.WarnContext(ctx, "cannot announce the change to the hooks", "err", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/doctor"
	"github.com/kubic-project/image-update-agent/internal/node/state"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "doctor",
		Short: "Check the node, and suggest a remedy for each problem",
		Long: `doctor checks everything that the agent depends on: the configuration, directories and
disk space, the grains file, the systemd units, D-Bus, hooks, the metrics port, kubelet,
signature keys, containerd and CRI, hosts.toml files, every followed tag at its registry,
and the clock. It prints a remedy for each problem.

It changes nothing, with one exception: if the fleet lock has never worked, the daemon
takes it and releases it at once.

Exit status: 0 no check failed, 1 a check failed. Warnings and advice do not count.`,
		Example: `  image-update-agent doctor
  image-update-agent doctor --output json | jq '.[] | select(.verdict != "ok")'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := a.examine(cmd.Context())
			if err := a.printFindings(findings); err != nil {
				return err
			}
			if slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Verdict == doctor.Fail }) {
				return cli.Exit(exitFailed)
			}
			return nil
		},
	})
}

func (a *app) examine(ctx context.Context) []doctor.Finding {
	c, err := a.load()
	if err != nil {
		return doctor.Configuration(err)
	}
	s := a.settingsOf(c)
	lockID, _ := s.lockID()
	return doctor.Examine(ctx, doctor.Node{
		LockID: lockID,
		LockHolder: func(ctx context.Context) (*fleet.LockHolder, error) {
			lock, err := s.lease()
			if err != nil {
				return nil, err
			}
			return lock.Read(ctx)
		},
		Settings: s.Settings, CertsD: c.CertsD, Files: c.Files, Platform: c.Platform, Bus: systemBus(s.root),
		Version: version, KubeletConfig: c.KubeletConfig(), Unread: c.Unread(),
		SaltCall: s.saltCall(a), HookProgram: s.hookProgram(a), Webhooks: s.webhooks(slog.New(slog.DiscardHandler)),
		Plan: func(ctx context.Context, wrap func(http.RoundTripper) http.RoundTripper) (plan.Plan, error) {
			a.onWire = wrap
			w, err := a.wire(ctx, s, quietLog(), nil)
			if err != nil {
				return plan.Plan{}, err
			}
			defer w.close()
			w.agent.Recorder = state.NewReader(s.StateDir)
			return w.agent.Plan(ctx, source.PollDue)
		},
	})
}

func (a *app) printFindings(all []doctor.Finding) error {
	return a.show(all, func() error { return doctor.Write(a.page(), all) })
}

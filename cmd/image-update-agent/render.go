// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/grains"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/node/pods"
	"github.com/kubic-project/image-update-agent/systemd"
)

// renderCommand is for the unit that runs before kubelet, and hidden: later the
// daemon does its work.
func (a *app) renderCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "render",
		Short: "Render pod manifests from the templates of the booting system",
		Long: `image-update-agent-render.service runs render at boot, before kubelet starts. If an update
or a rollback of the system changed the template of a pod manifest, render renders the
pod manifest again. The pod then starts with the new template at once, instead of starting
with the old one and restarting later. render also restores a pod manifest that was set
aside when the power failed. It prints the result for each file, one a line.

It asks no registry. It leaves a pod manifest as it is if the agent was not the last to
write it, if a hold blocks its images, if the node is being removed, if a rule refuses the
tag of the template, if that tag is of another registry or lower than the current one, if
signatures are required and none is known, if the pull policy is IfNotPresent and the node
does not have the image, or if only the configuration has changed. The daemon offers these
changes like any other update.

Once kubelet has been started or the boot is complete, render changes nothing and exits
with 4. If systemd did not boot the system (in an image build, or with another init), it
exits with 4 unless podManifests is set, and once a static pod is running.`,
		Example: `  systemctl status image-update-agent-render.service`,
		Hidden:  true,
		Args:    cli.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.renderAtBoot(cmd.Context()) },
	})
}

func (a *app) renderAtBoot(ctx context.Context) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	if err := s.unread(); err != nil {
		return fmt.Errorf("%w: %w", release.ErrHeld, err)
	}
	if err := beforeKubelet(ctx, s); err != nil {
		return fmt.Errorf("%w: kubelet may have been started: %w", release.ErrHeld, err)
	}
	log := quietLog()
	unlock, err := s.lockState(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	a.acts.Store(true)
	w, err := a.wire(ctx, s, log, nil)
	if err != nil {
		return err
	}
	defer w.close()
	if s.Grains.Enabled {
		w.agent.Announcer = grains.AtBoot{Announcer: grains.Announcer{
			Store: grains.New("/", s.Grains.Path, log), Changed: func(context.Context) {},
		}}
	}
	steps, err := w.agent.Boot(ctx)
	if printed := a.printBoot(steps); printed != nil || err != nil {
		return errors.Join(err, printed)
	}
	return plan.BootErrors(steps)
}

// runtimeTimeout bounds an answer of the runtime.
const runtimeTimeout = 10 * time.Second

// beforeKubelet returns an error unless a write restarts no pod. systemd knows whether kubelet has been started since
// the boot; where it has not booted the system (in an image, or with another init), CRI shows whether a static pod
// runs.
func beforeKubelet(ctx context.Context, s settings) error {
	if systemd.IsBooted(s.root) {
		return systemd.Kubelet{Bus: s.systemBus(), Unit: s.platform.KubeletUnit}.Unstarted(ctx)
	}
	runtime, err := pods.New(pods.Options{Socket: s.CRI.Socket})
	if err != nil {
		return configError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	static, _, err := runtime.Containers(ctx)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil // nothing runs without a runtime
	}
	for _, c := range static {
		if c.Running {
			return fmt.Errorf("systemd did not boot this system, and %s of the static pod %s is running", c.Name, c.Pod)
		}
	}
	return err
}

func (a *app) printBoot(steps []plan.BootStep) error {
	views := statuspage.BootSteps(steps)
	return a.show(views, func() error { return statuspage.WriteBoot(a.out, views, a.zone) })
}

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
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/grains"
	"github.com/kubic-project/image-update-agent/internal/pods"
	"github.com/kubic-project/image-update-agent/internal/state"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
	"github.com/kubic-project/image-update-agent/systemd"
)

// renderCommand is for the unit that runs before kubelet, and hidden: later the
// daemon does its work.
func (a *app) renderCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "render",
		Short: "Bring pod manifests to the templates of the system that boots",
		Long: `render is what image-update-agent-render.service runs at boot, before kubelet
starts: a pod manifest whose template an update or a rollback of the system has
changed is rendered anew, so that its pod starts with it, instead of starting
with the old one and being restarted later. A pod manifest that was set aside
when the power went is put back. What becomes of each file is printed, one a
line.

It asks no registry. A pod manifest stays as it is where the agent was not the
last to write it, where a person or the configuration holds its images, while
the node is being removed, where a rule refuses the template's tag, where it is
of another registry or lower than what is there, where signatures are required
and none is known, with the pull policy IfNotPresent where the node does not
have the image, and where only the configuration has changed. The daemon offers
these as any other update.

Once kubelet has been started, or the boot is over, it changes nothing and ends
with 4. Where systemd has not booted the system, in an image that is built or with
another init, it ends with 4 once a static pod runs.`,
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
	if err := beforeKubelet(ctx, s); err != nil {
		return fmt.Errorf("%w: not before kubelet's start: %w", release.ErrHeld, err)
	}
	log := quietLog()
	unlock, err := state.New(s.StateDir, s.RuntimeDir, log).Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	a.acts.Store(true)
	w, err := a.wire(ctx, s, log)
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
			return fmt.Errorf("systemd has not booted this system, and %s of the static pod %s runs", c.Name, c.Pod)
		}
	}
	return err
}

func (a *app) printBoot(steps []plan.BootStep) error {
	views := statuspage.BootSteps(steps)
	return a.show(views, func() error { return statuspage.WriteBoot(a.out, views, a.zone) })
}

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
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/podfiles"
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
			Store: grains.New(s.root, s.Grains.Path, log), Changed: func(context.Context) {},
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
		return systemd.Kubelet{Bus: systemBus(s.root), Unit: s.platform.KubeletUnit}.Unstarted(ctx)
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

// putBackCommand is for the unit, and hidden: a daemon does the same when it
// starts.
func (a *app) putBackCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "put-back",
		Short: "Restore pod manifests that were set aside",
		Long: `put-back restores the pod manifests that a daemon had set aside when it was killed during
an apply. Each file .NAME.image-update-agent-aside gets its name back, so that kubelet
starts the pod again. If a file with that name exists by now, it stays, and the one that
was set aside is removed. put-back prints the restored names, one a line; it is no error
if there are none.

The systemd unit runs it whenever the daemon ends. It needs no daemon and takes no lock,
so it never waits. Two at once, or one beside a daemon during an apply, are harmless: each
file is restored by one rename that replaces nothing.

If the configuration cannot be read, put-back uses the directory that kubelet's
configuration names, or /etc/kubernetes/manifests, and exits with 2. If it is not known
which directory kubelet reads, and podManifests is not set, it exits with 1.`,
		Example: `  image-update-agent put-back`,
		Hidden:  true,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, wrong := a.loadAnyway()
			switch {
			case c == nil:
				return wrong
			case wrong == nil:
				wrong = c.Unread()
			}
			dir := c.Settings.PodManifests
			if wrong != nil {
				wrong = fmt.Errorf("pod manifests may be set aside elsewhere than in %s: %w", dir, wrong)
			}
			a.acts.Store(true)
			names, err := podfiles.New(podfiles.Dirs{PodManifests: dir}).PutBack(cmd.Context())
			printed := a.show(putBackView{append([]string{}, names...)}, func() error {
				for _, name := range names {
					fmt.Fprintln(a.out, name)
				}
				return nil
			})
			return errors.Join(printed, err, wrong)
		},
	})
}

// putBackView is `put-back --output json`.
type putBackView struct {
	PutBack []string `json:"putBack"` // names of pod manifests
}

// loadAnyway returns the configuration. If that is wrong, it returns the one without any
// file, and the error: a misspelt key must not keep a pod away. c is nil if that fails, too.
func (a *app) loadAnyway() (c *config.Config, wrong error) {
	c, wrong = a.load()
	if wrong == nil {
		return c, nil
	}
	// Also the file of the package may be wrong.
	c, err := config.Load(config.Sources{Root: a.below(), Defaults: true, Command: a.starts})
	if err != nil {
		return nil, errors.Join(wrong, err)
	}
	return c, wrong
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
)

func (a *app) lockCommand() *cobra.Command {
	return group("lock", "Show or release the fleet lock of this node",
		a.lockShowCommand(), a.lockReleaseCommand())
}

func (a *app) lockShowCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "show",
		Short: "Show whether this node holds the fleet lock or waits for it",
		Long: `show prints what this node knows about the fleet lock (apply.lock): whether it holds the
lock, waits for it or was refused, since when and for which pod manifests, the holder as
far as known, and the id of this node in the lock. It sends no request.

Exit status: 0 shown, 1 the status cannot be read, 2 no lock is configured.`,
		Example: `  image-update-agent lock show
  image-update-agent lock show --output json | jq -r '.holders[].id'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.needsLock(); err != nil {
				return err
			}
			s, err := a.currentStatus(cmd.Context())
			switch {
			case err == nil && s.Lock == nil && a.away:
				err = fmt.Errorf("%w, and its last status does not have the fleet lock", api.ErrNoDaemon)
			case err == nil && s.Lock == nil:
				err = errors.New("the daemon does not know the fleet lock yet: run systemctl reload image-update-agent")
			}
			if err != nil {
				return err
			}
			return a.show(s.Lock, func() error { return statuspage.Lock(a.page(), *s.Lock) })
		},
	})
}

func (a *app) lockReleaseCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "release",
		Short: "Release the fleet lock of this node, even if a pod has failed",
		Long: `release makes the daemon release the lock of this node, so that other nodes can continue.
A lock that is kept because a pod did not become healthy stops the fleet on purpose:
release it when you know that the update is not the cause. To release the lock of another
node, use the command that lock show prints, or the lock server.

Exit status: 0 released, 1 nothing confirmed it (the agent tries again), 2 no
lock is configured, 4 an apply is running.`,
		Example: `  image-update-agent lock release`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.needsLock(); err != nil {
				return err
			}
			daemon, err := a.daemonClient()
			if err != nil {
				return err
			}
			s, err := daemon.ReleaseLock(cmd.Context(), nil)
			if err != nil {
				return err
			}
			return a.show(s.Lock, func() error { return statuspage.Lock(a.page(), *s.Lock) })
		},
	})
}

// needsLock returns an error if no lock is configured.
func (a *app) needsLock() error {
	s, err := a.settings()
	switch {
	case isConfig(err):
		return nil // the daemon knows
	case err == nil && !s.Apply.Lock.IsSet():
		err = cli.Usage(agent.ErrNoLock)
	}
	return err
}

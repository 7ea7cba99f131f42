// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/fleetlock"
	"github.com/kubic-project/image-update-agent/internal/quorum"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
)

func (a *app) lockCommand() *cobra.Command {
	return group("lock", "Show the lock of the fleet as this node sees it, or release it",
		a.lockShowCommand(), a.lockReleaseCommand())
}

func (a *app) lockShowCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "show",
		Short: "Show whether this node has the lock or waits for it, since when, and who has it",
		Long: `show prints what this node knows of the lock of the fleet (apply.lock): whether it
has the lock or waits for it, since when and for which pod manifests, who has it
where the lock server says so, and this node's id in the server's list. No server is
asked.

Exit status: 0 shown, 1 it cannot be read, 2 no lock is configured.`,
		Example: `  image-update-agent lock show
  image-update-agent lock show --output json | jq -r '.holders[].id'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.needsLock(); err != nil {
				return err
			}
			s, err := a.currentStatus(cmd.Context())
			if err == nil && s.Lock == nil {
				err = errors.New("the daemon does not know of the lock yet: it is starting, or systemctl reload image-update-agent")
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
		Short: "Give this node's lock back, also one that is kept because a pod failed",
		Long: `release has the running daemon give this node's lock back to the lock server, so that
other nodes go on. A lock that is kept because a pod did not come up stops the fleet
on purpose: release it when you know that the cause is not the update. It cannot
release the lock of another node; that is the lock server's to do.

Exit status: 0 released, 1 the server did not confirm it (it is tried again), 2 no
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

// needsLock returns an error unless a lock is configured.
func (a *app) needsLock() error {
	s, err := a.settings()
	if err == nil && s.Apply.Lock.URL == "" {
		err = cli.Usage(agent.ErrNoLock)
	}
	return err
}

// lock is the lock of the fleet as a policy.
func (s settings) lock() fleet.Lock {
	l := s.Apply.Lock
	if l.URL == "" {
		return fleet.Lock{}
	}
	id, _ := s.lockID()
	return fleet.Lock{Pods: l.Pods, Server: l.URL, Group: l.Group, ID: id}
}

// lockID is this node's id in the lock server's list, and the one that it may have had before.
func (s settings) lockID() (id, former string) {
	own := fleetlock.ID(s.machineID())
	if s.Apply.Lock.ID == config.LockIDZincati {
		return fleetlock.ZincatiID(s.machineID()), own
	}
	return own, "" // Zincati's id may be Zincati's
}

// joinFleet has an agent ask the control plane and take the lock of the fleet, where it is to.
func (s settings) joinFleet(a *agent.Agent, log *slog.Logger) error {
	if s.Apply.Quorum == config.QuorumRequire {
		a.Quorum = quorum.Control{Root: s.root, Kubeconfigs: s.platform.Kubeconfigs}
	}
	l := s.Apply.Lock
	if l.URL == "" {
		return nil
	}
	id, former := s.lockID()
	lock, err := fleetlock.New(fleetlock.Options{
		URL: l.URL, Group: l.Group, ID: id, Former: former, CA: l.CA, Cert: l.Cert, Key: l.Key, Version: version,
		Roots: hosts.NewTrust(s.root, os.Getenv, log).Roots, Proxy: hosts.NewProxies(s.root, os.Getenv).For,
	})
	if err != nil {
		return configError{err}
	}
	a.FleetLock = lock
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubelease"
	"github.com/kubic-project/image-update-agent/internal/fleet/quorum"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
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

// lock is the lock of the fleet as a policy.
func (s settings) lock() fleet.Lock {
	l := s.Apply.Lock
	id, _ := s.lockID()
	switch {
	case l.Lease != "":
		return fleet.Lock{Pods: l.Pods, Lease: l.Lease, ID: id}
	case l.URL != "":
		return fleet.Lock{Pods: l.Pods, Server: l.URL, Group: l.Group, ID: id}
	}
	return fleet.Lock{}
}

// lockID is this node's id in the lock server's list, and the one that it may have had before. In the cluster, it is
// the name of the node.
func (s settings) lockID() (id, former string) {
	if s.Apply.Lock.Lease != "" {
		return strings.ToLower(s.name()), ""
	}
	own := fleetlock.ID(s.machineID())
	if s.Apply.Lock.ID == config.LockIDZincati {
		return fleetlock.ZincatiID(s.machineID()), own
	}
	return own, "" // Zincati's id may be Zincati's
}

// lease is the lock in a Lease of the cluster.
func (s settings) lease() (*kubelease.Client, error) {
	l := s.Apply.Lock
	name, _ := s.lockID()
	return kubelease.New(kubelease.Options{
		Lease: l.Lease, Kubeconfig: l.Kubeconfig, Root: s.root, Node: name, Machine: fleetlock.ID(s.machineID()),
		Version: version,
	})
}

// joinFleet has an agent ask the control plane, and take the lock of the fleet, where it is to.
func (s settings) joinFleet(a *agent.Agent, log *slog.Logger) error {
	if s.Apply.Quorum == config.QuorumRequire {
		a.Quorum = quorum.Control{Root: s.root, Kubeconfigs: s.platform.Kubeconfigs}
	}
	l := s.Apply.Lock
	id, former := s.lockID()
	switch {
	case l.Lease != "":
		lock, err := s.lease()
		if err != nil {
			return configError{err}
		}
		a.FleetLock = lock
		return nil
	case l.URL == "":
		return nil
	}
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

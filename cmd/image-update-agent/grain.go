// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/grains"
)

// announcer is the Salt grain, or silent where it is turned off.
func announcer(s settings, log *slog.Logger) agent.Announcer {
	store := grains.New("/", s.Grains.Path, log)
	if !s.Grains.Enabled {
		return silent{store}
	}
	return salt{store, s.Grains.Velum, func(ctx context.Context) { s.saltIsDue(ctx, log) }}
}

// salt announces through the grains file.
type salt struct {
	store *grains.Store
	velum bool
	wrote func(context.Context) // called when the file has changed
}

func (s salt) Announce(ctx context.Context, a status.Announcement) error {
	g := grains.Grain{
		Available: len(a.Updates) > 0, State: a.State, Reason: a.Reason, Count: len(a.Updates), Velum: s.velum,
	}
	for _, u := range a.Updates {
		g.Updates = append(g.Updates, grains.Update{
			Image: u.Image, Change: u.Change, From: u.From, To: u.To, Digest: u.Digest.String(),
		})
	}
	for _, n := range a.NotAllowed {
		g.NotAllowed = append(g.NotAllowed, grains.NotAllowed{Image: n.Image, Tag: n.Tag, Rule: n.Rule, Key: n.Key})
	}
	changed, err := s.store.Announce(ctx, g)
	if changed {
		s.wrote(ctx)
	}
	return announced(err)
}

// announced translates an error of the grains file into one of the agent.
func announced(err error) error {
	switch {
	case errors.Is(err, grains.ErrHeld):
		return fmt.Errorf("%w: %w", release.ErrHeld, err)
	case errors.Is(err, grains.ErrNoSalt):
		return nil // a node without Salt has no grains
	default:
		return err
	}
}

func (s salt) Busy(ctx context.Context) (string, error) { return s.store.Busy(ctx) }

// silent announces nothing, and withdraws a reboot that was requested before grains were
// turned off.
type silent struct{ store *grains.Store }

func (s silent) Announce(ctx context.Context, _ status.Announcement) error {
	err := s.store.Withdraw(ctx)
	if errors.Is(err, grains.ErrRefused) {
		return nil // what we cannot read is not ours, and turned off
	}
	return announced(err)
}

func (silent) Busy(context.Context) (string, error) { return "", nil }

// rebooted is a node whose reboot may be a part of the very update that owns it: Salt
// sets the grain, reboots, and takes it away when the pods are up.
type rebooted struct{ salt }

// Busy answers as agent.Announcer.
func (r rebooted) Busy(ctx context.Context) (string, error) {
	name, err := r.store.Busy(ctx)
	if grains.Reboots(name) {
		return "", err
	}
	return name, err
}

// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Announcer announces updates through the grains file. It implements agent.Announcer.
type Announcer struct {
	Store *Store
	Velum bool
	// Changed is called when the file has changed.
	Changed func(context.Context)
}

// Announce implements agent.Announcer.
func (a Announcer) Announce(ctx context.Context, what status.Announcement) error {
	g := Grain{
		Available: len(what.Updates) > 0, State: what.State, Reason: what.Reason, Count: len(what.Updates), Velum: a.Velum,
	}
	for _, u := range what.Updates {
		g.Updates = append(g.Updates, Update{
			Image: u.Image, Change: u.Change, From: u.From, To: u.To, Digest: u.Digest.String(),
		})
	}
	for _, n := range what.NotAllowed {
		g.NotAllowed = append(g.NotAllowed, NotAllowed{Image: n.Image, Tag: n.Tag, Rule: n.Rule, Key: n.Key})
	}
	changed, err := a.Store.Announce(ctx, g)
	if changed {
		a.Changed(ctx)
	}
	return announced(err)
}

// Busy implements agent.Announcer.
func (a Announcer) Busy(ctx context.Context) (string, error) { return a.Store.Busy(ctx) }

// announced converts an error of the grains file to one of the agent.
func announced(err error) error {
	switch {
	case errors.Is(err, ErrHeld):
		return fmt.Errorf("%w: %w", release.ErrHeld, err)
	case errors.Is(err, ErrNoSalt):
		return nil // a node without Salt has no grains
	default:
		return err
	}
}

// Silent is an Announcer that announces nothing, and withdraws a reboot request from before grains were turned off.
type Silent struct{ Store *Store }

// Announce implements agent.Announcer.
func (s Silent) Announce(ctx context.Context, _ status.Announcement) error {
	err := s.Store.Withdraw(ctx)
	if errors.Is(err, ErrRefused) {
		return nil // an unreadable file has no keys of the agent, and grains are turned off
	}
	return announced(err)
}

// Busy implements agent.Announcer.
func (Silent) Busy(context.Context) (string, error) { return "", nil }

// AtBoot is an Announcer on a node whose reboot may be part of the update that owns it: Salt sets the grain, reboots,
// and removes it when the pods are up.
type AtBoot struct{ Announcer }

// Busy implements agent.Announcer.
func (b AtBoot) Busy(ctx context.Context) (string, error) {
	name, err := b.Store.Busy(ctx)
	if Reboots(name) {
		return "", err
	}
	return name, err
}

// SPDX-License-Identifier: Apache-2.0

// Package reboot detects whether the node is about to reboot, or will boot another snapshot: then the agent applies
// nothing.
//
// It only reads: rebootmgr (3.x over varlink, 2.x over D-Bus), systemd's scheduled shutdown, the files that request a
// reboot (kured's sentinel and SUSE's), and tukit, whose snapshot waits for a reboot. A source that the node does not
// have is no hold; a source that cannot be read is a hold with its error.
//
// rebootmgr is asked with NO_AUTO_START; tukitd is started, as nothing else knows about snapshots. No method that sets
// anything is called.
package reboot

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

const (
	// patience limits the answer of a daemon that answers from memory.
	patience = 2 * time.Second
	// slowPatience limits tukitd's answer: the bus starts it for the call, and it starts snapper.
	slowPatience = 5 * time.Second
)

// Node is the node to observe. The zero value is the local one, without a bus.
type Node struct {
	Root string // prefix of /run; may be empty
	Bus  string // D-Bus address of the system bus; empty if there is none
}

// Holds returns the holds for imminent reboots. It reads all sources concurrently.
func (n Node) Holds(ctx context.Context) []status.Hold {
	sources := []func(context.Context) []status.Hold{
		n.scheduled, n.sentinel, n.rebootmgr3, n.rebootmgr2, n.snapshot,
	}
	found := make([][]status.Hold, len(sources))
	var all sync.WaitGroup
	for i, source := range sources {
		all.Go(func() { found[i] = source(ctx) })
	}
	all.Wait()
	return slices.Concat(found...)
}

// ask calls a service on the bus. It returns false if there is no such service.
func (n Node) ask(ctx context.Context, wait time.Duration, q bus.Question, into ...any) (bool, error) {
	if n.Bus == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := bus.Open(ctx, n.Bus)
	if err == nil {
		defer conn.Close()
		err = conn.Ask(ctx, q, into...)
	}
	if errors.Is(err, bus.ErrNone) || errors.Is(err, bus.ErrAbsent) {
		return false, nil
	}
	return err == nil, err
}

func hold(name, reason string) []status.Hold { return []status.Hold{{Name: name, Reason: reason}} }

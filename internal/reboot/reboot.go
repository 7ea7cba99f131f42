// SPDX-License-Identifier: Apache-2.0

// Package reboot finds out whether the node is about to reboot, or to begin
// another life at its next boot: then nothing is applied any more.
//
// It only reads: rebootmgr (3.x over varlink, 2.x over D-Bus), systemd's scheduled
// shutdown, the files that ask for a reboot (kured's sentinel and SUSE's), and tukit,
// whose snapshot waits for a reboot. What the node does not have holds nothing; what
// cannot be understood holds with its error.
package reboot

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/bus"
)

const (
	// patience is how long a daemon may take that answers from memory.
	patience = 2 * time.Second
	// slowPatience is how long tukitd may take: the bus starts it for the question,
	// and it starts snapper.
	slowPatience = 5 * time.Second
)

// Node is the node to observe. The zero value is the one that it runs on, without a
// bus.
type Node struct {
	Root string // what comes before /run; empty: nothing
	Bus  string // D-Bus address of the system bus; empty: there is none
}

// Holds lists what is about to happen to the node. All sources are read at the same
// time.
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

// ask asks one service on the bus. It is false where there is no such service.
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

// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

const (
	// BusName is the daemon's name on the system bus, and that of its interface.
	BusName = "org.opensuse.ImageUpdateAgent1"
	// busPath is where its one object is.
	busPath = "/org/opensuse/ImageUpdateAgent1"
)

// Watched is a daemon that reports what it does.
type Watched interface {
	Daemon
	// Changed is closed when the status becomes another one, its progress aside.
	Changed() <-chan struct{}
	// Listen calls f with all progress until stop has returned. f takes no time.
	Listen(f func(status.Progress)) (stop func())
}

// BusOptions configure a Bus.
type BusOptions struct {
	Address   string // of the bus, as in the D-Bus specification
	MachineID string // machine-id(5), for org.freedesktop.DBus.Peer; another text: GetMachineId is unknown
	Daemon    Watched
	Log       *slog.Logger
}

// Bus serves the daemon on the system bus. Every user may read; root may act, and
// users that polkit allows it (docs/dev/decisions/0068).
type Bus struct {
	BusOptions
	authority authority
	unknown   chan struct{}  // one for each call whose caller is not known yet
	slots     chan struct{}  // one for each acting call that goes on
	acting    sync.WaitGroup // those calls
	revision  atomic.Uint64  // of the status
	join      func(ctx context.Context, address, name string) (*bus.Service, error)

	// The first and the longest wait between two attempts, and how long a connection
	// must last to begin with the first again.
	firstWait, lastWait, steady time.Duration
}

// joinTimeout bounds the joining: the bus is on this node.
const joinTimeout = 10 * time.Second

// NewBus makes the object; nothing is connected yet.
func NewBus(o BusOptions) *Bus {
	return &Bus{
		BusOptions: o,
		authority:  newAuthority(o.Address),
		unknown:    make(chan struct{}, maxClients),
		slots:      make(chan struct{}, maxClients),
		join:       bus.Join,
		// A bus restarts within a second; a node without one should not wake the
		// daemon more often than every five minutes.
		firstWait: time.Second, lastWait: 5 * time.Minute, steady: time.Minute,
	}
}

// Run serves until ctx ends. If the bus is missing, ends, or another connection owns
// the name, Run tries again at growing intervals; it logs each problem once.
func (b *Bus) Run(ctx context.Context) {
	defer b.acting.Wait()
	pause, logged := b.firstWait, ""
	for {
		began := time.Now()
		joined, err := b.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if joined {
			logged = ""
			if time.Since(began) >= b.steady {
				pause = b.firstWait
			}
		}
		if problem := err.Error(); problem != logged {
			level := slog.LevelWarn
			if errors.Is(err, bus.ErrNone) { // a node may well have no bus
				level = slog.LevelInfo
			}
			b.Log.Log(ctx, level, "cannot join the system bus", "err", err)
			logged = problem
		}
		if wait.For(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, b.lastWait)
	}
}

// serve joins the bus and answers until that ends, which is always an error.
func (b *Bus) serve(ctx context.Context) (joined bool, err error) {
	joining, cancel := context.WithTimeout(ctx, joinTimeout)
	service, err := b.join(joining, b.Address, BusName)
	cancel()
	if err != nil {
		return false, err
	}
	defer context.AfterFunc(ctx, service.Close)()
	defer service.Close()
	b.Log.Info("joined the system bus", "name", BusName)
	alive, lost := context.WithCancel(ctx)
	var signals sync.WaitGroup
	signals.Go(func() { b.emit(alive, service) })
	defer signals.Wait()
	defer lost()
	for {
		call, err := service.Next()
		if err != nil {
			return true, err
		}
		b.answer(ctx, service, call)
	}
}

// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
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
	// Changed is closed when the status changes, except its progress.
	Changed() <-chan struct{}
	// Listen calls f with all progress until stop has returned. f must not block.
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
	signals.Go(b.emit(alive, service))
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

const (
	// progressRest is the time between two reports of progress: four a second are
	// more than an eye wants.
	progressRest = 250 * time.Millisecond
	// maxReported bounds the reports that wait for a client, but ends. Fewer images are pulled side by side.
	maxReported = 16
)

// emitter sends signals; bus.Service is one.
type emitter interface {
	Emit(path, face, member string, values ...any) error
}

// emit returns the function that sends signals until ctx ends, or one cannot be sent: then the connection is at its
// end. It tells what has changed since emit, so emit is called before a client is answered. Only this function waits
// for the bus, the daemon's work does not.
func (b *Bus) emit(ctx context.Context, to emitter) (send func()) {
	latest := progress{added: make(chan struct{}, 1)}
	stop := b.Daemon.Listen(latest.put)
	var shown status.Status
	look := func() (changed <-chan struct{}, now map[string]dbus.Variant) {
		changed = b.Daemon.Changed()
		s := lasting(b.Daemon.Status())
		if !reflect.DeepEqual(s, shown) {
			b.revision.Add(1)
			shown = s
		}
		return changed, b.properties(s)
	}
	changed, last := look()
	return func() {
		defer stop()
		timer := time.NewTimer(0)
		defer timer.Stop()
		<-timer.C
		added := latest.added
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-added:
				if emitProgress(to, latest.take()) != nil {
					return
				}
				added = nil // what comes now waits
				timer.Reset(progressRest)
			case <-timer.C:
				added = latest.added
			}
			next, now := look()
			if emitChanges(to, last, now) != nil {
				return
			}
			changed, last = next, now
		}
	}
}

// lasting is a status without what changes by itself: its time, the progress, and what is left of the requests.
func lasting(s status.Status) status.Status {
	s.Written, s.Progress, s.Pulls, s.Budget = time.Time{}, nil, nil, nil
	return s
}

// emitChanges sends what is different, and Changed for a client that reads the status itself; then each new failure and
// hold.
func emitChanges(to emitter, last, now map[string]dbus.Variant) error {
	different := map[string]dbus.Variant{}
	for name, value := range now {
		if !reflect.DeepEqual(last[name], value) {
			different[name] = value
		}
	}
	if len(different) == 0 {
		return nil
	}
	if err := to.Emit(busPath, propertiesFace, "PropertiesChanged", BusName, different, []string{}); err != nil {
		return err
	}
	if err := to.Emit(busPath, BusName, "Changed",
		now["State"].Value(), now["Reason"].Value(), now["Revision"].Value()); err != nil {
		return err
	}
	return errors.Join(
		emitNew(to, "Failed", last["Failures"], now["Failures"], "podManifest", "container", "image", "kind", "to"),
		emitNew(to, "Held", last["Holds"], now["Holds"], "podManifest", "image", "name"),
	)
}

// emitNew sends a signal for each element of a list that was not in it, as keys tell them apart.
func emitNew(to emitter, signal string, last, now dbus.Variant, keys ...string) error {
	was, _ := last.Value().([]record)
	is, _ := now.Value().([]record)
	for _, one := range is {
		if slices.ContainsFunc(was, func(r record) bool {
			return !slices.ContainsFunc(keys, func(key string) bool { return !reflect.DeepEqual(r[key], one[key]) })
		}) {
			continue
		}
		if err := to.Emit(busPath, BusName, signal, one); err != nil {
			return err
		}
	}
	return nil
}

func emitProgress(to emitter, reports []status.Progress) error {
	for _, p := range reports {
		if err := to.Emit(busPath, BusName, "Progress", outside.Line(p.Reference, maxWord), p.Phase,
			uint64(max(p.Done, 0)), uint64(max(p.Total, 0))); err != nil {
			return err
		}
		if err := to.Emit(busPath, BusName, "ProgressDetails", encode(p)); err != nil {
			return err
		}
	}
	return nil
}

// progress is what a client has not heard yet: the last report of each reference, in the order in which the references
// came up.
type progress struct {
	added   chan struct{} // filled when there is any
	byPhase bool          // the last report of each phase of a reference, in their order

	mu      sync.Mutex // guards reports
	reports []status.Progress
}

// put takes a report, and never waits.
func (p *progress) put(report status.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, waiting := range slices.Backward(p.reports) {
		if waiting.Reference != report.Reference {
			continue
		}
		if p.byPhase && (waiting.Phase != report.Phase || waiting.Ended != report.Ended) {
			break
		}
		p.reports[i] = report
		return
	}
	// A client waits for the end of what it has heard of. There are no more ends than images and pods.
	if len(p.reports) >= maxReported && !isEnd(report) {
		return
	}
	p.reports = append(p.reports, report)
	select {
	case p.added <- struct{}{}:
	default:
	}
}

// isEnd reports whether a report is the last one of its reference.
func isEnd(p status.Progress) bool {
	return p.Phase == status.PhaseDone || p.Phase == status.PhaseFailed || p.Phase == status.PhaseInterrupted
}

// take empties it.
func (p *progress) take() []status.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	reports := p.reports
	p.reports = nil
	return reports
}

// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

const (
	// progressRest is the time between two reports of progress: four a second are
	// more than an eye wants.
	progressRest = 250 * time.Millisecond
	// maxReported bounds the references in one report. Fewer are pulled side by side.
	maxReported = 16
)

// emitter sends signals; bus.Service is one.
type emitter interface {
	Emit(path, face, member string, values ...any) error
}

// tell sends signals until ctx ends, or one cannot be sent: then the connection is
// at its end. Only tell waits for the bus, the daemon's work does not.
func (b *Bus) tell(ctx context.Context, to emitter) {
	var heard news
	heard.poke = make(chan struct{}, 1)
	defer b.Daemon.Listen(heard.put)()
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	poke := heard.poke
	var last map[string]dbus.Variant
	for {
		changed := b.Daemon.Changed()
		now := properties(b.Daemon.Status())
		if last != nil && tellChanges(to, last, now) != nil {
			return
		}
		last = now
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-poke:
			if tellProgress(to, heard.take()) != nil {
				return
			}
			poke = nil // what comes now waits
			timer.Reset(progressRest)
		case <-timer.C:
			poke = heard.poke
		}
	}
}

// tellChanges sends what is different, and that something is if it is not only the
// time of a check.
func tellChanges(to emitter, last, now map[string]dbus.Variant) error {
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
	for _, name := range []string{"State", "Updates", "NotAllowed", "Holds"} {
		if _, is := different[name]; is {
			return to.Emit(busPath, BusName, "Changed", now["State"].Value(), now["Reason"].Value())
		}
	}
	return nil
}

func tellProgress(to emitter, reports []agent.Progress) error {
	for _, p := range reports {
		if err := to.Emit(busPath, BusName, "Progress", outside.Line(p.Reference, maxWord), p.Phase,
			uint64(max(p.Done, 0)), uint64(max(p.Total, 0))); err != nil {
			return err
		}
	}
	return nil
}

// news is the last report of each reference, in the order in which the references
// came up.
type news struct {
	poke chan struct{} // filled when there is any

	mu      sync.Mutex // guards reports
	reports []agent.Progress
}

// put takes a report, and never waits.
func (n *news) put(p agent.Progress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.reports {
		if n.reports[i].Reference == p.Reference {
			n.reports[i] = p
			return
		}
	}
	if len(n.reports) >= maxReported {
		return
	}
	n.reports = append(n.reports, p)
	select {
	case n.poke <- struct{}{}:
	default:
	}
}

// take empties it.
func (n *news) take() []agent.Progress {
	n.mu.Lock()
	defer n.mu.Unlock()
	reports := n.reports
	n.reports = nil
	return reports
}

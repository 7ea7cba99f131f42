// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent/status"
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

// emit sends signals until ctx ends, or one cannot be sent: then the connection is
// at its end. Only emit waits for the bus, the daemon's work does not.
func (b *Bus) emit(ctx context.Context, to emitter) {
	latest := progress{added: make(chan struct{}, 1)}
	defer b.Daemon.Listen(latest.put)()
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	added := latest.added
	var last map[string]dbus.Variant
	for {
		changed := b.Daemon.Changed()
		now := properties(b.Daemon.Status())
		if last != nil && emitChanges(to, last, now) != nil {
			return
		}
		last = now
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
	}
}

// emitChanges sends what is different, and that something is if it is not only the
// time of a check.
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
	for _, name := range []string{"State", "Updates", "NotAllowed", "Holds", "Withdrawn"} {
		if _, is := different[name]; is {
			return to.Emit(busPath, BusName, "Changed", now["State"].Value(), now["Reason"].Value())
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
	}
	return nil
}

// progress is the last report of each reference, in the order in which the references
// came up.
type progress struct {
	added chan struct{} // filled when there is any

	mu      sync.Mutex // guards reports
	reports []status.Progress
}

// put takes a report, and never waits.
func (p *progress) put(report status.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.reports {
		if p.reports[i].Reference == report.Reference {
			p.reports[i] = report
			return
		}
	}
	if len(p.reports) >= maxReported {
		return
	}
	p.reports = append(p.reports, report)
	select {
	case p.added <- struct{}{}:
	default:
	}
}

// take empties it.
func (p *progress) take() []status.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	reports := p.reports
	p.reports = nil
	return reports
}

// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// Everybody hears what changes, whoever has caused it.
func TestSignalsAreForEverybody(t *testing.T) {
	t.Parallel()
	d := newWatched(&daemon{status: status.Status{State: status.StateCurrent}})
	system := onBus(t, d)
	user := system.ConnectAs(t, nobodysID)
	require.NoError(t, user.AddMatchSignalContext(t.Context(), dbus.WithMatchObjectPath(busPath)))
	signals := make(chan *dbus.Signal, 10)
	user.Signal(signals)
	until(t, "listens", func() bool { return d.say(status.Progress{Reference: "a:1", Phase: "downloading", Done: 1, Total: 2}) })
	got := <-signals
	assert.Equal(t, BusName+".Progress", got.Name)
	assert.Equal(t, []any{"a:1", "downloading", uint64(1), uint64(2)}, got.Body)

	s := someStatus()
	d.become(s)
	got = <-signals
	assert.Equal(t, BusName+".ProgressDetails", got.Name)
	details := got.Body[0].(map[string]dbus.Variant)
	assert.Equal(t, "downloading", details["phase"].Value())
	got = <-signals
	assert.Equal(t, propertiesFace+".PropertiesChanged", got.Name)
	require.Len(t, got.Body, 3)
	assert.Equal(t, BusName, got.Body[0])
	changed := got.Body[1].(map[string]dbus.Variant)
	assert.Equal(t, "staged", changed["State"].Value())
	assert.Equal(t, true, changed["UpdatesAvailable"].Value())
	assert.NotContains(t, changed, "NextCheck", "it is what it was")
	got = <-signals
	assert.Equal(t, BusName+".Changed", got.Name)
	assert.Equal(t, []any{"staged", s.Reason, uint64(2)}, got.Body)
}

// heard is a bus in a bubble that keeps what it is sent.
type heard struct {
	mu      sync.Mutex
	signals []string
	details []string // of the progress
	broken  bool
}

func (h *heard) Emit(_, face, member string, values ...any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken {
		return errors.New("broken")
	}
	if face == propertiesFace {
		for _, name := range slices.Sorted(maps.Keys(values[1].(map[string]dbus.Variant))) {
			member += " " + name
		}
		values = nil
	}
	if member == "ProgressDetails" {
		h.details = append(h.details, fmt.Sprint(values...))
		return nil
	}
	h.signals = append(h.signals, fmt.Sprint(append([]any{member}, values...)...))
	return nil
}

func (h *heard) take() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	signals := h.signals
	h.signals = nil
	return signals
}

// telling runs f in a bubble with a bus that sends signals.
func telling(t *testing.T, f func(t *testing.T, d *watched, h *heard)) {
	t.Helper()
	emitting(t, func(t *testing.T, d *watched, h *heard, begin func()) {
		begin()
		synctest.Wait()
		f(t, d, h)
	})
}

// emitting runs f in a bubble with a bus that sends signals from begin until the test ends.
func emitting(t *testing.T, f func(t *testing.T, d *watched, h *heard, begin func())) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, h := newWatched(&daemon{status: status.Status{State: status.StateCurrent}}), &heard{}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		send := NewBus(BusOptions{Daemon: d}).emit(ctx, h)
		f(t, d, h, func() { go func() { defer close(ended); send() }() })
		stop()
		<-ended
		assert.False(t, d.say(status.Progress{}), "nobody listens any more")
	})
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's time
	synctest.Wait()
}

func TestOnlyChangesAreTold(t *testing.T) {
	telling(t, func(t *testing.T, d *watched, h *heard) {
		assert.Empty(t, h.take(), "what is there at the start is no change")
		s := d.Status()
		d.become(s)
		assert.Empty(t, h.take(), "a cycle that changes nothing")
		now := time.UnixMicro(1)
		s.LastCheck = &now
		d.become(s)
		assert.Equal(t, []string{"PropertiesChanged LastCheck Revision", "Changedcurrent2"}, h.take())
		s.Reason = "another"
		d.become(s)
		assert.Equal(t, []string{"PropertiesChanged Reason Revision", "Changedcurrentanother3"}, h.take())
		s.PodManifests = []status.PodStatus{{Holds: []status.Hold{{Name: "busy"}}}}
		d.become(s)
		assert.Equal(t, []string{
			"PropertiesChanged Holds Revision", "Changedcurrentanother4",
			`Heldmap[by:"" image:"" name:"busy" podManifest:"" reason:"" until:@t 0]`,
		}, h.take())
		s.PodManifests = []status.PodStatus{{Holds: []status.Hold{{Name: "busy", Reason: "still"}}}}
		d.become(s)
		assert.Equal(t, []string{"PropertiesChanged Holds Revision", "Changedcurrentanother5"}, h.take(), "the same hold")
		s.Updates = []status.AnnouncedUpdate{{Image: "a"}}
		d.become(s)
		told := h.take()
		assert.Len(t, told, 2, "both properties of the updates in one")
		assert.Equal(t, "Changedcurrentanother6", told[1])
		s.State = status.StateHeld
		d.become(s)
		assert.Equal(t, []string{"PropertiesChanged Revision State", "Changedheldanother7"}, h.take())
	})
}

// Reports come by the hundred; four times a second the last of each reference is
// told, and the very last one is never lost.
func TestProgressIsThrottled(t *testing.T) {
	telling(t, func(t *testing.T, d *watched, h *heard) {
		d.say(status.Progress{Reference: "a", Phase: "downloading", Done: 1, Total: 9})
		assert.Equal(t, []string{"Progressadownloading1 9"}, h.take(), "the first at once")
		for n := range 500 {
			d.say(status.Progress{Reference: "a", Phase: "downloading", Done: int64(n)})
			d.say(status.Progress{Reference: "b", Phase: "resolving", Done: -1})
		}
		assert.Empty(t, h.take())
		d.say(status.Progress{Reference: "a", Phase: "done"})
		pass(progressRest)
		assert.Equal(t, []string{"Progressadone0 0", "Progressbresolving0 0"}, h.take())
		pass(time.Hour)
		assert.Empty(t, h.take(), "each once")
		signals := 0
		for range 100 { // a second
			for n := range 1000 {
				d.say(status.Progress{Reference: fmt.Sprint(n)})
			}
			pass(10 * time.Millisecond)
			signals += len(h.take())
		}
		assert.LessOrEqual(t, signals, 5*maxReported)
		assert.Greater(t, signals, 2*maxReported)
	})
}

func TestTellingEndsWithTheConnection(t *testing.T) {
	for name, f := range map[string]func(d *watched){
		"at a change": func(d *watched) { d.become(status.Status{State: status.StateHeld}) },
		"at progress": func(d *watched) { d.say(status.Progress{Reference: "a"}) },
	} {
		t.Run(name, func(t *testing.T) {
			telling(t, func(t *testing.T, d *watched, h *heard) {
				h.broken = true
				f(d)
				synctest.Wait()
				assert.False(t, d.say(status.Progress{}))
			})
		})
	}
}

// A client that waits for each change sees each: of images, sources, holds without an offer and the history, also
// beyond what the lists have.
func TestEveryChangeOfTheStatusIsTold(t *testing.T) {
	telling(t, func(t *testing.T, d *watched, h *heard) {
		s := d.Status()
		revision := 1
		changed := func() string { revision++; return fmt.Sprintf("Changedcurrent%d", revision) }
		for want, change := range map[string]func(){
			"Images":        func() { s.Images = []status.ImageStatus{{Image: "a"}} },
			"Sources":       func() { s.Sources = []status.SourceStatus{{Repository: "a"}} },
			"StandingHolds": func() { s.StandingHolds = []status.StandingHold{{Repository: "*"}} },
			"History":       func() { s.History = []status.HistoryEntry{{PodManifest: "a"}} },
			"Activity":      func() { s.Activity = status.ActivityStaging },
		} {
			change()
			d.become(s)
			names := []string{want, "Revision"}
			slices.Sort(names)
			assert.Equal(t, []string{"PropertiesChanged " + names[0] + " " + names[1], changed()}, h.take())
		}
		s.Failures = []status.Failure{{PodManifest: "a.yaml", To: "2"}, {PodManifest: "b.yaml"}}
		d.become(s)
		told := h.take()
		require.Len(t, told, 4)
		assert.Equal(t, changed(), told[1])
		assert.Contains(t, told[2], `Failedmap[at:@t 0 cause:"" container:"" from:"" image:"" kind:"" podManifest:"a.yaml"`)
		assert.Contains(t, told[3], `podManifest:"b.yaml"`)
		s.Images = make([]status.ImageStatus, maxListed+1)
		d.become(s)
		assert.Equal(t, []string{"PropertiesChanged Cut Images Revision", changed()}, h.take())
		s.Images = slices.Clone(s.Images)
		s.Images[maxListed].Image = "the last"
		d.become(s)
		assert.Equal(t, []string{"PropertiesChanged Revision", changed()}, h.take())
		s.Written = time.Unix(1, 0)
		d.become(s)
		assert.Empty(t, h.take(), "its time is no change")
	})
}

// Whoever has heard of a beginning hears of the end, with the pod manifest.
func TestEndsAreTold(t *testing.T) {
	telling(t, func(t *testing.T, d *watched, h *heard) {
		d.say(status.Progress{Reference: "velum", Phase: "verifying", PodManifest: "velum.yaml"})
		for n := range maxReported + 1 {
			d.say(status.Progress{Reference: fmt.Sprint(n), Phase: "asking"})
		}
		d.say(status.Progress{Reference: "velum", Phase: "done", Ended: "verifying", PodManifest: "velum.yaml"})
		pass(progressRest)
		h.take()
		assert.Contains(t, h.details, `map[count:@t 0 deadline:@t 0 done:@t 0 ended:"verifying" healthyAt:@t 0 number:@t 0 phase:"done" `+
			`podManifest:"velum.yaml" reason:"" reference:"velum" since:@t 0 total:@t 0]`)
	})
}

// Of any number of pulls and pods that end together, each end is told.
func TestEachEndOfManyIsTold(t *testing.T) {
	for _, phase := range []string{status.PhaseDone, status.PhaseFailed, status.PhaseInterrupted} {
		t.Run(phase, func(t *testing.T) {
			telling(t, func(t *testing.T, d *watched, h *heard) {
				d.say(status.Progress{Reference: "first", Phase: status.PhaseResolving})
				h.take()
				for n := range maxReported {
					d.say(status.Progress{Reference: fmt.Sprint("under way ", n), Phase: status.PhaseDownloading})
				}
				var want []string
				for n := range 10 * maxReported {
					d.say(status.Progress{Reference: fmt.Sprintf("%03d ", n), Phase: phase})
					want = append(want, fmt.Sprintf("Progress%03d %s0 0", n, phase))
				}
				pass(progressRest)
				told := h.take()
				require.Len(t, told, maxReported+len(want))
				assert.Equal(t, want, told[maxReported:])
			})
		})
	}
}

// A client may have been answered before the first signal: what changes from then on is told.
func TestWhatChangesAtTheBeginningIsTold(t *testing.T) {
	emitting(t, func(t *testing.T, d *watched, h *heard, begin func()) {
		d.become(status.Status{State: status.StateHeld})
		begin()
		assert.Equal(t, []string{"PropertiesChanged Revision State", "Changedheld2"}, h.take())
	})
}

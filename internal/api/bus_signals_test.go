// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
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
	assert.Equal(t, propertiesFace+".PropertiesChanged", got.Name)
	require.Len(t, got.Body, 3)
	assert.Equal(t, BusName, got.Body[0])
	changed := got.Body[1].(map[string]dbus.Variant)
	assert.Equal(t, "staged", changed["State"].Value())
	assert.Equal(t, true, changed["UpdatesAvailable"].Value())
	assert.NotContains(t, changed, "NextCheck", "it is what it was")
	got = <-signals
	assert.Equal(t, BusName+".Changed", got.Name)
	assert.Equal(t, []any{"staged", s.Reason}, got.Body)
}

// heard is a bus in a bubble that keeps what it is sent.
type heard struct {
	mu      sync.Mutex
	signals []string
	broken  bool
}

func (h *heard) Emit(_, face, member string, values ...any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken {
		return errors.New("broken")
	}
	if face == propertiesFace {
		for name := range values[1].(map[string]dbus.Variant) {
			member += " " + name
		}
		values = nil
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

// telling runs tell in a bubble until the test ends.
func telling(t *testing.T, f func(t *testing.T, d *watched, h *heard)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, h := newWatched(&daemon{status: status.Status{State: status.StateCurrent}}), &heard{}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); NewBus(BusOptions{Daemon: d}).emit(ctx, h) }()
		synctest.Wait()
		f(t, d, h)
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
		assert.Equal(t, []string{"PropertiesChanged LastCheck"}, h.take(), "a check alone is no news")
		s.Reason = "another"
		d.become(s)
		assert.Equal(t, []string{"PropertiesChanged Reason"}, h.take())
		s.PodManifests = []status.PodStatus{{Holds: []status.Hold{{Name: "busy"}}}}
		d.become(s)
		assert.Equal(t, []string{"PropertiesChanged Holds", "Changedcurrentanother"}, h.take())
		s.Updates = []status.AnnouncedUpdate{{Image: "a"}}
		d.become(s)
		told := h.take()
		assert.Len(t, told, 2, "both properties of the updates in one")
		assert.Equal(t, "Changedcurrentanother", told[1])
		s.State = status.StateHeld
		d.become(s)
		assert.Equal(t, []string{"PropertiesChanged State", "Changedheldanother"}, h.take())
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

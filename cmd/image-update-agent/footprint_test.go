// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/systemd"
)

// Memory is returned after a cycle that follows a quiet minute, once a minute while cycles follow one another, a minute
// after the last of these, and at once after a cycle that leaves much.
func TestMemoryIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := systemd.NewNotifier(slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		var freed atomic.Int64
		heap := uint64(0)
		free := func() { freed.Add(1) }
		f := &frugalNotifier{
			Notifier: n, heap: func() uint64 { return heap }, free: free, idle: time.AfterFunc(idleAfter, free),
		}
		// after lets time pass until another cycle ends, and returns how often memory was returned.
		after := func(d time.Duration) int64 {
			before := freed.Load()
			<-time.After(d) // the bubble's time
			synctest.Wait()
			f.Status("")
			return freed.Load() - before
		}
		assert.EqualValues(t, 1, after(0), "the first cycle")
		total := int64(0)
		for range 600 {
			total += after(time.Second)
		}
		assert.InDelta(t, 10, total, 1, "of ten minutes of cycles")
		assert.EqualValues(t, 2, after(10*time.Minute), "a minute after a cycle, and after the next one")
		assert.EqualValues(t, 1, after(10*time.Minute), "nothing was left to return")
		heap = mostHeap + 1
		assert.EqualValues(t, 1, after(time.Second), "it left much")
		heap = mostHeap
		assert.EqualValues(t, 0, after(time.Second))
		<-time.After(2 * idleAfter)
	})
}

func TestCollections(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{
		0: 400, 1 << 20: 400, leastHeap / 4: 300, leastHeap / 2: 100, leastHeap * 3 / 4: 33, leastHeap * 9 / 10: 25,
		leastHeap: 25, 1 << 30: 25,
	} {
		assert.Equal(t, want, gcPercent(live), live)
	}
}

// A heap that grows and shrinks again is collected late, then early, then late again.
func TestCollectionsFollowTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	collectEarly()
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	until := func(want func(int) bool) {
		for !want(percent()) {
			runtime.GC()
			runtime.Gosched() // for the cleanup
		}
	}
	most := make([]byte, 4*leastHeap)
	until(func(p int) bool { return p == 25 })
	runtime.KeepAlive(most)
	until(func(p int) bool { return p > 25 })
}

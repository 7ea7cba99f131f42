// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
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

// smapsOf returns a mapping of /usr/bin/p in proc_pid_smaps(5), with changed lines.
func smapsOf(head string, replace ...string) string {
	text := head + `
Size:                  8 kB
Rss:                   8 kB
Shared_Clean:          8 kB
Shared_Dirty:          0 kB
Private_Clean:         0 kB
Private_Dirty:         0 kB
Referenced:            8 kB
Anonymous:             0 kB
FilePmdMapped:         0 kB
Swap:                  0 kB
THPeligible:           0
VmFlags: rd ex mr mw me sd
`
	return strings.NewReplacer(replace...).Replace(text)
}

func TestUnchanged(t *testing.T) {
	t.Parallel()
	const head = "00400000-00402000 r-xp 00000000 fe:01 42    /usr/bin/p"
	is := []span{{0x400000, 0x402000}}
	for name, c := range map[string]struct {
		smaps string
		want  []span
	}{
		"text":                {smapsOf(head), is},
		"constants":           {smapsOf(strings.Replace(head, "r-xp", "r--p", 1)), is},
		"data":                {smapsOf(strings.Replace(head, "r-xp", "rw-p", 1)), nil},
		"shared":              {smapsOf(strings.Replace(head, "r-xp", "r--s", 1)), nil},
		"not on the disk yet": {smapsOf(head, "Private_Dirty:         0", "Private_Dirty:         4"), is},
		"relocated":           {smapsOf(head, "Anonymous:             0", "Anonymous:             4"), nil},
		"relocated, swapped":  {smapsOf(head, "Swap:                  0", "Swap:                  4"), nil},
		"an older kernel":     {smapsOf(head, "Anonymous:", "Anon:"), nil},
		"of another file":     {smapsOf(head + "2"), nil},
		"of the heap":         {smapsOf("00400000-00402000 r--p 00000000 00:00 0"), nil},
		"of a longer path":    {smapsOf(strings.Replace(head, "/usr/bin/p", "/x/usr/bin/p", 1)), nil},
		"no addresses":        {smapsOf("x-y r-xp 00000000 fe:01 42 /usr/bin/p"), nil},
		"torn":                {head, nil},
		"two":                 {smapsOf(head, "Swap:                  0", "Swap:                  4") + smapsOf(head), is},
		"the first of two":    {smapsOf(head) + smapsOf("00600000-00602000 r--p 00000000 fe:01 42    /usr/lib/q"), is},
		"nothing":             {"", nil},
		"of a replaced file":  {smapsOf(head + " (deleted)"), nil},
	} {
		assert.Equal(t, c.want, unchanged([]byte(c.smaps), "/usr/bin/p"), name)
	}
	assert.Equal(t, is, unchanged([]byte(smapsOf(head+" (deleted)")), "/usr/bin/p (deleted)"))
}

// residentOwn returns the kB of the program's own unchanged mappings in memory.
func residentOwn(t *testing.T) int {
	t.Helper()
	own, err := os.Readlink("/proc/self/exe")
	require.NoError(t, err)
	smaps, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	require.NotEmpty(t, unchanged(smaps, own))
	sum := 0
	for _, s := range unchanged(smaps, own) {
		found := regexp.MustCompile(fmt.Sprintf(`(?m)^0*%x-[^\n]*\nSize:[^\n]*\n(?:\w+PageSize:[^\n]*\n)*Rss: +(\d+) kB`, s.from)).FindSubmatch(smaps)
		require.NotNil(t, found, "%x", s.from)
		kb, err := strconv.Atoi(string(found[1]))
		require.NoError(t, err)
		sum += kb
	}
	return sum
}

// Goroutines that use code, constants and types of the program all the time notice nothing.
func TestForgettingOwnPagesUnderLoad(t *testing.T) {
	before := residentOwn(t)
	forgetOwnPages()
	assert.Less(t, residentOwn(t), before/2, "of %d kB", before)
	work := func() string {
		text, err := json.Marshal(map[string]any{"b": []any{1, "x", nil, 1.5}, "a": map[string]int{"z": 1}})
		if err != nil {
			return err.Error()
		}
		matched := regexp.MustCompile(`[a-z]"`).ReplaceAllString(string(text), "-")
		return fmt.Sprintf("%x %s %v", sha256.Sum256([]byte(matched)), matched, span{1, 2})
	}
	want := work()
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 300 {
				if got := work(); got != want {
					t.Errorf("%s: want %s", got, want)
					return
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { workers.Wait(); close(ended) }()
	for {
		forgetOwnPages()
		select {
		case <-ended:
			return
		default:
		}
	}
}

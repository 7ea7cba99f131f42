// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/systemd"
)

// frugalNotifier is a systemd.Notifier that returns memory to the kernel after cycles, at most once a minute: at once
// after a cycle that follows a quiet minute, else a minute later. Collecting after each of many cycles took a quarter
// of their CPU. A cycle that leaves much memory, as one that stages does, returns it at once.
type frugalNotifier struct {
	*systemd.Notifier
	heap  func() uint64 // bytes of the heap in memory
	free  func()
	idle  *time.Timer
	until time.Time // when idle fires, or has fired
	ended time.Time // when the last cycle did
}

const (
	// idleAfter is longer than a person waits between two commands, and far
	// shorter than the ten minutes between two observations.
	idleAfter = time.Minute
	// leastHeap is the heap, in bytes, below which Go does not collect: three cycles of 20 images. A collection took a
	// fifth of a cycle's CPU.
	leastHeap = 10 << 20
	// mostHeap is the heap, in bytes, that a cycle may leave for a minute.
	mostHeap = leastHeap + 2<<20
)

func newFrugalNotifier(n *systemd.Notifier) *frugalNotifier {
	return &frugalNotifier{Notifier: n, heap: heapInMemory, free: freeMemory, idle: time.AfterFunc(idleAfter, freeMemory)}
}

// Status is called at the end of each cycle, by the loop alone.
func (f *frugalNotifier) Status(text string) {
	f.Notifier.Status(terminal.InZone(text, time.Local))
	now := time.Now()
	isRare := now.Sub(f.ended) >= idleAfter // then it costs what it would cost a minute later
	f.ended = now
	switch {
	case isRare || f.heap() > mostHeap:
		f.idle.Stop()
		f.until = time.Time{}
		f.free()
	case !now.Before(f.until):
		f.until = now.Add(idleAfter)
		f.idle.Reset(idleAfter)
	}
}

// freeMemory returns the unused heap, and the pages of the program's file, which it gets again when it uses them.
func freeMemory() {
	debug.FreeOSMemory()
	forgetOwnPages()
}

// oneProcessor has Go run one thing at a time, unless the environment says
// otherwise. A poll is one question after the other; with more processors their
// threads wake one another for each, which was a quarter of its CPU (32.8 ms with
// two processors, 23.7 with one). What needs a processor in a pull, unpacking, runs
// in containerd: 0.27 s of CPU instead of 0.31 for 150 MB. It costs milliseconds on
// the sockets while a cycle computes, and limits a pull without TLS to 500 MB/s.
func oneProcessor() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}

// collectEarly has Go collect when the heap has leastHeap, and above that when 25 % of what is alive has been allocated
// anew, not 100 %, unless the environment says otherwise. A pull keeps 8 MB alive, and allocates as it copies: staging
// 20 images took 49 MB with 100 %, 40 MB with 40 %, and 37 MB with 25 %.
func collectEarly() {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(gcPercent(live[0].Value.Uint64()))
	runtime.AddCleanup(new(collected), func(struct{}) { collectEarly() }, struct{}{}) // after the next collection
}

// collected is an object that nothing uses: the next collection finds that. Go may combine smaller objects.
type collected [32]byte

// gcPercent returns how much of what is alive may be allocated anew before the next collection, for Go's GOGC.
func gcPercent(live uint64) int {
	const least, most = 25, 400 // most: of a heap that is nearly empty
	if live >= leastHeap {
		return least
	}
	return int(max(least, min(most, (leastHeap-live)*100/max(live, 1))))
}

// heapInMemory is what the kernel counts of the heap: in use, or kept for later.
func heapInMemory() uint64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	var sum uint64
	for _, s := range samples {
		sum += s.Value.Uint64()
	}
	return sum
}

// forgetOwnPages unmaps the pages of the program's own file, most of its idle memory: the kernel maps 16 of them around
// each one that is used, and keeps them. They stay in the page cache: a thread that uses one gets it again in a
// microsecond. An error leaves the memory as it is. MADV_RANDOM does not make the kernel map fewer (263 faults and
// 16.8 MB with and without it).
func forgetOwnPages() {
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, s := range unchanged(smaps, own) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, s.from, s.to-s.from, syscall.MADV_DONTNEED)
	}
}

// span is a range of addresses.
type span struct{ from, to uintptr }

// unchanged returns the mappings of a file, from proc_pid_smaps(5), of which the file has every byte, so that they can
// be read from it again: private ones that nothing can write to, and of which no page has yet differed from the file.
// The loader writes the addresses of a position independent program into some of its pages, and then protects these as
// read-only: such a mapping has anonymous pages, in memory or in the swap. (A dirty page that is not anonymous is the
// file's own, which the kernel has yet to write to the disk.)
func unchanged(smaps []byte, file string) []span {
	var out []span
	var at span
	var isOurs bool
	known := 0 // counts of changed pages that are zero
	for line := range bytes.Lines(smaps) {
		fields := strings.Fields(string(line))
		if len(fields) > 1 && !strings.HasSuffix(fields[0], ":") {
			at, isOurs = mapping(string(line), file)
			known = 0
			continue
		}
		if len(fields) < 2 || !isOurs || !slices.Contains(changes, fields[0]) {
			continue
		}
		if isOurs = fields[1] == "0"; !isOurs {
			continue
		}
		if known++; known == len(changes) {
			out = append(out, at)
		}
	}
	return out
}

// changes are the counts of pages that differ from the file.
var changes = []string{"Anonymous:", "Swap:"}

// mapping parses the first line of a mapping. is: it is private, read-only, and of the file.
func mapping(line, file string) (at span, is bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[1] != "r--p" && fields[1] != "r-xp" ||
		!strings.HasSuffix(line, " "+file+"\n") {
		return span{}, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	first, err := strconv.ParseUint(from, 16, strconv.IntSize)
	if err != nil {
		return span{}, false
	}
	last, err := strconv.ParseUint(to, 16, strconv.IntSize)
	return span{uintptr(first), uintptr(last)}, err == nil && last > first
}

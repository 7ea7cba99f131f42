// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/kubic-project/image-update-agent/internal/terminal"
	"github.com/kubic-project/image-update-agent/systemd"
)

// frugalNotifier is a systemd.Notifier that returns memory to the kernel: at once after a cycle that follows an idle
// minute, or that has left much of it, as one that stages does; else when the daemon has been idle for a minute.
// Collecting after each of many cycles took a quarter of their CPU.
type frugalNotifier struct {
	*systemd.Notifier
	idle  *time.Timer
	kept  uint64    // bytes of the heap in memory after it was last returned
	ended time.Time // when the last cycle did
}

const (
	// idleAfter is longer than a person waits between two commands, and far
	// shorter than the ten minutes between two observations.
	idleAfter = time.Minute
	// slack is how much the heap may have grown after a cycle, in bytes: with 3 MB
	// the daemon came to 29 MB after twenty checks, with 1 MB to 28.
	slack = 1 << 20
)

func newFrugalNotifier(n *systemd.Notifier) *frugalNotifier {
	return &frugalNotifier{Notifier: n, idle: time.AfterFunc(idleAfter, freeMemory)}
}

// Status is called at the end of each cycle, by the loop alone.
func (f *frugalNotifier) Status(text string) {
	f.Notifier.Status(terminal.InZone(text, time.Local))
	f.idle.Reset(idleAfter)
	rare := time.Since(f.ended) > idleAfter // then it costs what it would cost a minute later
	f.ended = time.Now()
	if rare || heapInMemory() > f.kept+slack {
		freeMemory()
		f.kept = heapInMemory()
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

// earlyCollection has Go collect when 25 % of what is alive has been allocated
// anew, not 100 %, unless the environment says otherwise. A pull keeps 8 MB alive,
// and allocates as it copies: staging 20 images took 49 MB without, 40 MB with 40
// %, and 37 MB so.
func earlyCollection() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
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

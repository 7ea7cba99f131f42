// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// stage is the node.TB of the demo: it prints, and ends the story at the first failure.
type stage struct {
	interrupt context.Context // done after a signal
	ctx       context.Context
	cancel    context.CancelFunc
	out       io.Writer
	began     time.Time

	lock     sync.Mutex
	failed   bool
	cleanups []func()
}

var _ node.TB = (*stage)(nil)

func newStage(interrupt context.Context, out io.Writer) *stage {
	s := &stage{interrupt: interrupt, out: out, began: time.Now()}
	s.ctx, s.cancel = context.WithCancel(interrupt)
	return s
}

// run plays the story in its own goroutine, which Fatalf can end, and then runs the cleanups in reverse order.
func (s *stage) run(story func()) {
	for _, part := range append([]func(){story}, s.cleanup) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			part()
		}()
		<-done
	}
}

func (s *stage) cleanup() {
	s.cancel()
	for _, each := range slices.Backward(s.cleanups) {
		each()
	}
}

// step prints a heading with the time since the start.
func (s *stage) step(text string) {
	fmt.Fprintf(s.out, "\n[%5.1f s] %s\n", time.Since(s.began).Seconds(), text)
}

// say prints a line below a heading.
func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, "  "+format+"\n", args...) }

// Helper does nothing: the demo has no line numbers.
func (s *stage) Helper() {}

// Logf prints.
func (s *stage) Logf(format string, args ...any) { s.say(format, args...) }

// Errorf prints and fails the demo. Failures caused by an interruption are not printed.
func (s *stage) Errorf(format string, args ...any) {
	if s.Interrupted() {
		return
	}
	s.say("error: "+format, args...)
	s.lock.Lock()
	defer s.lock.Unlock()
	s.failed = true
}

// Fatalf prints, fails the demo and ends the calling goroutine.
func (s *stage) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

// Failed reports whether Errorf or Fatalf was called.
func (s *stage) Failed() bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.failed
}

// Interrupted reports whether a signal ended the story.
func (s *stage) Interrupted() bool { return s.interrupt.Err() != nil }

// Cleanup registers what run calls at the end.
func (s *stage) Cleanup(f func()) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// Context is done when the story is over or the demo is interrupted.
func (s *stage) Context() context.Context { return s.ctx }

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"
)

// TB is the part of testing.TB that the node uses; the demo has its own implementation.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(f func())
	Context() context.Context
}

// Patience is the time limit of every wait in a test. It checks no speed: it only ends a hanging test, also on a
// machine with 30 times its capacity of work.
const Patience = 10 * time.Minute

// pollInterval is the pause of Eventually. The node's programs are outside of this process and send it no events.
const pollInterval = 20 * time.Millisecond

// Eventually calls check until it returns nil, and fails the test with the last error after the deadline. All polling
// in the tests goes through it. A check that starts programs takes at most a fifth of the time, and leaves the
// processors to what it waits for.
func Eventually(tb TB, what string, deadline time.Duration, check func() error) {
	tb.Helper()
	expired := time.After(deadline)
	for {
		began := time.Now()
		err := check()
		if err == nil {
			return
		}
		select {
		case <-time.After(max(pollInterval, 4*time.Since(began))):
		case <-expired:
			tb.Fatalf("%s: not within %s: %v", what, deadline, err)
			return
		case <-tb.Context().Done():
			tb.Fatalf("%s: %v: %v", what, context.Cause(tb.Context()), err)
			return
		}
	}
}

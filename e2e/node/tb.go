// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"
)

// TB is the part of testing.TB that the node uses; the demo has its own.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(f func())
	Context() context.Context
}

// Patience is how long a test waits for what has to come. It asserts no speed: it only ends a test that hangs, also on
// a machine that has 30 times more to do than it can.
const Patience = 10 * time.Minute

// pollInterval is how often Eventually looks. The programs of the node are outside this process and tell nobody
// when they are done.
const pollInterval = 20 * time.Millisecond

// Eventually calls check until it returns nil, and fails the test with its last error after the deadline. It is the
// one place where the tests wait for something without being told.
func Eventually(tb TB, what string, deadline time.Duration, check func() error) {
	tb.Helper()
	expired := time.After(deadline)
	again := time.NewTicker(pollInterval)
	defer again.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-expired:
			tb.Fatalf("%s: not within %s: %v", what, deadline, err)
			return
		case <-tb.Context().Done():
			tb.Fatalf("%s: %v: %v", what, context.Cause(tb.Context()), err)
			return
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/fleet"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func TestLockIsDue(t *testing.T) {
	t.Parallel()
	awaits, unverified, done := fleet.Pod{Awaits: true}, fleet.Pod{Unverified: true}, fleet.Pod{}
	for title, c := range map[string]struct {
		state fleet.LockState
		pod   fleet.Pod
		retry time.Duration // RetryAt from now; 0: none
		want  bool
	}{
		"there is none":                 {pod: done},
		"a pod waits for it":            {state: fleet.LockWaiting, pod: awaits},
		"no pod waits any more":         {state: fleet.LockWaiting, pod: unverified, want: true},
		"a pod is not verified healthy": {state: fleet.LockHeld, pod: unverified},
		"all are verified healthy":      {state: fleet.LockHeld, pod: awaits, want: true},
		"it was not taken back yet":     {state: fleet.LockReleasing, pod: done, want: true},
		"the server is not asked":       {state: fleet.LockReleasing, pod: done, retry: time.Minute},
		"the clock was wrong":           {state: fleet.LockReleasing, pod: done, retry: 24 * time.Hour, want: true},
	} {
		l := fleet.LockRecord{State: c.state, Pods: []string{"etcd.yaml"}}
		if c.retry != 0 {
			l.RetryAt = now.Add(c.retry)
		}
		assert.Equal(t, c.want, l.IsDue(now, func(string) fleet.Pod { return c.pod }), title)
	}
}

func TestLockRetries(t *testing.T) {
	t.Parallel()
	lost, refused := &fleet.LockError{Err: errors.New("away")}, &fleet.LockError{Status: 409}
	later := &fleet.LockError{Status: 503, RetryAt: now.Add(time.Hour)}
	for title, c := range map[string]struct {
		failures int // before
		err      error
		jitter   float64
		want     time.Duration
	}{
		"a refusal":           {3, refused, 0.5, time.Minute},
		"the least wait":      {0, refused, 0, 30 * time.Second},
		"no answer":           {0, lost, 0.5, time.Minute},
		"no answer again":     {2, lost, 0.5, 4 * time.Minute},
		"no answer for hours": {50, lost, 0.5, 15 * time.Minute},
		"Retry-After":         {0, later, 0.5, time.Hour},
	} {
		l := fleet.LockRecord{State: fleet.LockWaiting, Pods: []string{"etcd.yaml"}, Failures: c.failures}
		l.Fail(c.err, now, c.jitter)
		assert.Equal(t, now.Add(c.want), l.RetryAt, title)
		reason, waits := l.Hold("etcd.yaml", now)
		assert.True(t, waits, title)
		assert.Equal(t, c.err.Error(), reason, title)
		_, waits = l.Hold("velum.yaml", now)
		assert.False(t, waits, title)
		_, waits = l.Hold("etcd.yaml", l.RetryAt)
		assert.False(t, waits, title)
	}
}

// A server that grants the lock to another node has taken it away from this one.
func TestLockGrantedToAnotherNode(t *testing.T) {
	t.Parallel()
	l := fleet.LockRecord{State: fleet.LockHeld, Given: true}
	l.Fail(&fleet.LockError{Err: errors.New("away")}, now, 0)
	assert.Equal(t, fleet.LockHeld, l.State)
	l.Fail(&fleet.LockError{Status: 409}, now, 0)
	assert.Equal(t, fleet.LockWaiting, l.State)
	assert.False(t, l.Given)
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for pods, want := range map[string][2]bool{"": {}, fleet.LockControlPlane: {true, false}, fleet.LockAll: {true, true}} {
		l := fleet.Lock{Pods: pods}
		assert.Equal(t, want, [2]bool{l.Covers(true), l.Covers(false)}, pods)
	}
}

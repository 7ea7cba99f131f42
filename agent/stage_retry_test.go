// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// tooSlow is how a registry ends a layer that comes too slowly. wish: the host asked to
// be left alone until then.
func tooSlow(wish time.Time) error {
	return &release.SourceError{
		Repository: velum, Host: agenttest.Host, Cause: release.CauseTimeout, RetryAt: wish,
		Err: errors.New("body: less than 1024 bytes a second over 1m0s (staging.leastSpeed)"),
	}
}

// slowPull is a node that is offered a release of velum whose staging ends with err,
// each after a minute.
type slowPull struct {
	*looped
	mu    sync.Mutex
	err   error
	count int
}

// tried is how often the staging was begun.
func (l *slowPull) tried() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// endsWith has the next staging end so.
func (l *slowPull) endsWith(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func pullSlowly(t *testing.T) *slowPull {
	t.Helper()
	l := &slowPull{looped: loop(t, 12*time.Hour, 0), err: tooSlow(time.Time{})}
	pass(10 * time.Minute) // the first poll of a new node
	l.Registry.Release(velum, "4.0.0", 1, "1.2")
	l.Node.OnStage = func(context.Context, release.Release) error {
		l.mu.Lock()
		l.count++
		l.mu.Unlock()
		<-time.After(time.Minute) // of the bubble
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.err
	}
	return l
}

// again is when status says that the staging is tried again.
func (l *slowPull) again() *time.Time { return image(l.Status(), "velum.yaml", "velum").RetryAt }

// triedAt asserts that the next staging begins then, and that status says so before.
func (l *slowPull) triedAt(at time.Time) {
	l.t.Helper()
	require.NotNil(l.t, l.again())
	require.Equal(l.t, at.UTC(), *l.again())
	before := l.tried()
	pass(at.Sub(l.now()) - time.Second)
	assert.Equal(l.t, before, l.tried())
	pass(2 * time.Second)
	assert.Equal(l.t, before+1, l.tried())
}

func (l *slowPull) check() {
	l.t.Helper()
	_, err := l.Check(l.t.Context(), nil)
	require.NoError(l.t, err)
}

// observe has the loop find the offer, and lets it stage once more by itself.
func (l *slowPull) observe() {
	l.t.Helper()
	l.check()
	require.NotNil(l.t, l.again())
	pass(max(l.again().Sub(l.now()), 0) + time.Minute)
	require.Equal(l.t, 2, l.tried())
}

func TestStatusShowsTheRetryOfASlowStaging(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pullSlowly(t)
		defer l.end()
		assert.Nil(t, l.again(), "nothing has failed yet")
		l.observe()
		assert.Equal(t, status.StateFailed, l.Status().State)
		l.triedAt(l.now().Add(10 * time.Minute))

		l.endsWith(nil)
		pass(time.Minute)
		assert.Equal(t, status.StateStaged, l.Status().State, l.Status().Reason)
		assert.Nil(t, l.again())
	})
}

func TestPollRetriesStaging(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pullSlowly(t)
		defer l.end()
		slot := *l.Status().NextCheck
		pass(slot.Sub(l.now()) - 15*time.Minute)
		l.observe()
		l.triedAt(slot)
	})
}

// A request stages only what it needs.
func TestRequestDoesNotMoveTheRetryOfAStaging(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pullSlowly(t)
		defer l.end()
		l.observe()
		again, tried := l.now().Add(10*time.Minute), l.tried()
		pass(5 * time.Minute)
		_, err := l.Hold(t.Context(), []string{"velum"}, false, "", time.Time{})
		require.NoError(t, err)
		assert.Equal(t, tried, l.tried())
		l.triedAt(again)
	})
}

func TestStagingIsNotRetriedBeforeRetryAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pullSlowly(t)
		defer l.end()
		wish := l.now().Add(time.Hour)
		l.endsWith(tooSlow(wish))
		l.check()
		require.NotNil(t, l.again())
		assert.Equal(t, wish.UTC(), *l.again())
	})
}

// While a container does not run the node is observed more often, and each observation
// stages what is missing.
func TestStagingIsRetriedSoonWhileAContainerIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pullSlowly(t)
		defer l.end()
		l.observe()
		l.Node.Now = l.now
		l.Node.SetKubelet(false)
		l.Node.Restart("velum.yaml", "velum")
		l.check()
		l.triedAt(l.now().Add(30 * time.Second))
	})
}

// A release that waits for space has no time of a retry.
func TestStagingThatWaitsForSpaceHasNoRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pullSlowly(t)
		defer l.end()
		l.endsWith(release.ErrNoSpace)
		l.Node.SetDisk(10*gib, mib)
		l.check()
		assert.Equal(t, 1, l.tried())
		assert.NotEmpty(t, podOf(l.Status(), "velum.yaml").Holds)
		assert.Nil(t, l.again())
	})
}

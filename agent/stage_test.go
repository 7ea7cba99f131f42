// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A failed pull is retried in the next cycle, not at once, even if files wait for it.
func TestFailedPullIsTriedOnceACycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 2, "2.1")
		tried := 0
		w.Node.OnStage = func(context.Context, release.Release) error {
			tried++
			return errors.New("the registry broke off")
		}
		w.check()
		assert.Equal(t, 1, tried)
		w.observe()
		assert.Equal(t, 2, tried)
	})
}

// slowPull is a node with an offered release of velum whose stagings fail with err, each after a minute.
type slowPull struct {
	*looped
	mu    sync.Mutex
	err   error
	count int
}

// tried returns how often the staging began.
func (l *slowPull) tried() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// endsWith makes the next staging end with err.
func (l *slowPull) endsWith(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func pullSlowly(t *testing.T) *slowPull {
	t.Helper()
	l := &slowPull{looped: loop(t, 12*time.Hour, 0), err: errors.New("body: less than 1024 bytes a second")}
	pass(10 * time.Minute) // the first poll of a new node
	l.Registry.Release(velum, "4.0.0", 1, "1.2")
	l.Node.OnStage = func(context.Context, release.Release) error {
		l.mu.Lock()
		l.count++
		l.mu.Unlock()
		<-time.After(time.Minute) // the bubble's time
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.err
	}
	return l
}

// again returns the time in the status at which the staging is retried.
func (l *slowPull) again() *time.Time { return image(l.Status(), "velum.yaml", "velum").RetryAt }

// triedAt asserts that the next staging begins at that time, and that the status announces it.
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

// observe lets the loop find the offer and stage it once more on its own.
func (l *slowPull) observe() {
	l.t.Helper()
	l.checks()
	require.NotNil(l.t, l.again())
	pass(max(l.again().Sub(l.now()), 0) + time.Minute)
	require.Equal(l.t, 2, l.tried())
}

func TestStatusShowsTheRetryOfASlowStaging(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pullSlowly(t)
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
		slot := *l.Status().NextCheck
		pass(slot.Sub(l.now()) - 15*time.Minute)
		l.observe()
		l.triedAt(slot)
	})
}

// A request stages only the releases that it needs.
func TestRequestDoesNotMoveTheRetryOfAStaging(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pullSlowly(t)
		l.observe()
		again, tried := l.now().Add(10*time.Minute), l.tried()
		pass(5 * time.Minute)
		_, err := l.Hold(t.Context(), []string{"velum"}, false, "", time.Time{})
		require.NoError(t, err)
		assert.Equal(t, tried, l.tried())
		l.triedAt(again)
	})
}

// While a container is down the node is observed more often, and each observation stages missing releases.
func TestStagingIsRetriedSoonWhileAContainerIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pullSlowly(t)
		l.observe()
		l.Node.Now = l.now
		l.Node.SetKubelet(false)
		l.Node.Restart("velum.yaml", "velum")
		l.checks()
		l.triedAt(l.now().Add(30 * time.Second))
	})
}

// A release that waits for space has no retry time.
func TestStagingThatWaitsForSpaceHasNoRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pullSlowly(t)
		l.endsWith(release.ErrNoSpace)
		l.Node.SetDisk(10*gib, mib)
		l.checks()
		assert.Equal(t, 1, l.tried())
		assert.NotEmpty(t, podOf(l.Status(), "velum.yaml").Holds)
		assert.Nil(t, l.again())
	})
}

const (
	gib = 1 << 30
	mib = 1 << 20
)

// big publishes a release of 100 MiB, for which the world's node needs 300 MiB.
func (w *world) big(repository, app string, rev int, build string) release.Release {
	w.t.Helper()
	tag := fmt.Sprintf("%s-rev%d", app, rev)
	b := release.Build{Size: 100 * mib, Created: w.Clock.Now(), Config: digest.FromString(repository + tag + build)}
	return w.Registry.PublishBuild(repository, b,
		tag+"-build"+build, tag, app)
}

// stagings counts the pulls of the image store.
func (w *world) stagings() *int {
	n := new(int)
	w.Node.OnStage = func(context.Context, release.Release) error {
		*n++
		return nil
	}
	return n
}

func TestMissingSpaceIsAHoldWithFigures(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	w.Policy.Reserve = policy.Reserve{Bytes: gib, Percent: 10, HighMark: 85}
	w.restart()
	next := w.big(velum, "4.0.0", 2, "1.1")
	tried := w.stagings()
	w.Node.SetDisk(10*gib, 1700*mib) // 15 % of 10 GiB stay free

	s := w.check()

	assert.Equal(t, status.StateHeld, s.State, s.Reason)
	p := podOf(s, "velum.yaml")
	require.Len(t, p.Holds, 1)
	assert.Equal(t, status.Hold{Name: status.HoldDisk, Reason: velum + ":4.0.0-rev2-build1.1: " +
		"needs 104.9 MB to pull and 209.7 MB to unpack with 1.6 GB of 10.7 GB kept free, " +
		"but only 1.8 GB are free on /var/lib/containerd"}.Explained(), p.Holds[0])
	short := image(s, "velum.yaml", "velum").Shortage
	require.NotNil(t, short)
	assert.Equal(t, int64(1700*mib), short.Free)
	assert.NotZero(t, short.Compressed+short.Unpacked)
	assert.Empty(t, p.Error)
	assert.Empty(t, w.Node.WaitingFile("velum.yaml"), "nothing is offered that is not staged")
	assert.False(t, image(s, "velum.yaml", "velum").Staged)
	w.runs("velum.yaml", "velum", first.Digest)
	assert.Equal(t, 1, *tried)

	w.Clock.Add(time.Hour)
	s = w.observe()
	assert.Equal(t, status.StateHeld, s.State, s.Reason)
	assert.Equal(t, 1, *tried, "it is not tried again before there is room")
	w.idle()

	w.Node.SetDisk(10*gib, 1900*mib)
	s = w.observe()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.True(t, w.Node.Pinned(velum, next.Digest))
	assert.Equal(t, 2, *tried)
	w.idle()
}

func TestPullThatFillsTheDiskIsHeldUntilThereIsSpace(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.big(velum, "4.0.0", 2, "1.1")
	w.Node.SetDisk(10*gib, 2*gib)
	tried := 0
	w.Node.Filled = func(release.Release) error {
		if tried++; tried == 1 {
			return fmt.Errorf("write: %w", release.ErrNoSpace)
		}
		return nil
	}

	s := w.check()

	assert.Equal(t, status.StateHeld, s.State, s.Reason)
	assert.Contains(t, s.Reason, "only 2.1 GB are free on /var/lib/containerd")
	w.Node.SetDisk(10*gib, 2*gib+100*mib)
	assert.Equal(t, status.StateHeld, w.observe().State, "hardly more than was not enough")
	assert.Equal(t, 1, tried)
	w.restart()
	assert.Equal(t, status.StateHeld, w.check().State, "nor is it after a restart")
	assert.Equal(t, 1, tried)
	w.Node.SetDisk(10*gib, 3*gib)
	s = w.observe()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, 2, tried)
	assert.NotContains(t, w.Disk.JSON(), `"least"`)
}

// A pull may need less than before, because other images brought shared layers. The agent still remembers that it
// filled the disk.
func TestPollChecksSpaceAgain(t *testing.T) {
	t.Parallel()
	for _, filled := range []bool{false, true} {
		w, _ := running(t)
		w.big(velum, "4.0.0", 2, "1.1")
		fetched := w.Node.Fetched()
		w.Node.SetDisk(10*gib, 200*mib)
		if filled {
			w.Node.SetDisk(10*gib, 2*gib)
			w.Node.Filled = func(release.Release) error { fetched++; return release.ErrNoSpace }
		}
		tried := w.stagings()
		for n, look := range []func() status.Status{w.check, w.observe, w.poll, w.observe, w.check} {
			s := look()
			assert.Equal(t, status.StateHeld, s.State, s.Reason)
			assert.Equal(t, []int{1, 1, 2, 2, 3}[n], *tried, "look %d", n)
		}
		if filled {
			fetched--
		}
		w.Node.Filled = nil
		assert.Equal(t, fetched, w.Node.Fetched(), "a byte of a layer")
		w.Node.SetDisk(10*gib, 8*gib)
		s := w.observe()
		assert.Equal(t, status.StateStaged, s.State, s.Reason)
	}
}

// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

const (
	gib = 1 << 30
	mib = 1 << 20
)

// big publishes a release of 100 MiB, which the world's node needs 300 MiB for.
func (w *world) big(repository, app string, rev int, build string) release.Release {
	w.t.Helper()
	tag := fmt.Sprintf("%s-rev%d", app, rev)
	b := release.Build{Size: 100 * mib, Created: w.Clock.Now(), Config: digest.FromString(repository + tag + build)}
	return w.Registry.PublishBuild(repository, b,
		tag+"-build"+build, tag, app)
}

// stagings counts what is asked of the image store.
func (w *world) stagings() *int {
	n := new(int)
	w.Node.OnStage = func(context.Context, release.Release) error {
		*n++
		return nil
	}
	return n
}

func TestNoSpaceIsAHoldWithFigures(t *testing.T) {
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
		"needs 104.9 MB to pull and 209.7 MB to unpack, and 1.6 GB of 10.7 GB stay free: " +
		"only 1.8 GB are free on /var/lib/containerd"}.Explained(), p.Holds[0])
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
	assert.Equal(t, 1, *tried, "nobody is asked again before there is room")
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

// What a pull needs may have become less: others brought what they share. That a
// disk was filled is not forgotten.
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

// A question for the free space that failed is no answer: a full disk must not be filled by it.
func TestAPullWaitsWhileTheFreeSpaceIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // CRI has a minute
		w, _ := running(t)
		w.big(velum, "4.0.0", 2, "1.1")
		w.Node.SetDisk(10*gib, mib)
		require.Equal(t, status.StateHeld, w.check().State)
		w.Node.Unmeasured = assert.AnError
		fetched := w.Node.Fetched()
		for _, observe := range []func() status.Status{w.observe, w.check} {
			s := observe()
			assert.Equal(t, status.StateHeld, s.State, s.Reason)
			assert.Contains(t, s.Reason, "free space unknown: "+assert.AnError.Error())
		}
		assert.Equal(t, fetched, w.Node.Fetched(), "a byte of a layer")
		w.Node.Unmeasured = nil
		w.Node.SetDisk(10*gib, 8*gib)
		s := w.check()
		assert.Equal(t, status.StateStaged, s.State, s.Reason)
	})
}

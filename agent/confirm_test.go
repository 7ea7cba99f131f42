// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// confirming is a node with velum current that reads what is new twice.
func confirming(t *testing.T) (*world, release.Release) {
	t.Helper()
	w, first := running(t)
	w.Policy.ConfirmAfter = 30 * time.Second
	w.restart()
	return w, first
}

// meanwhile does something after each pause, n counts them from 1.
func (w *world) meanwhile(do func(n int)) {
	n := 0
	var said time.Duration
	w.agent.Progress = func(p status.Progress) {
		if p.Phase != "confirming" {
			return
		}
		if said += 10 * time.Second; said%w.Policy.ConfirmAfter == 0 {
			n++
			do(n)
		}
	}
}

// OBS moves a tag that it cannot delete to a mangled manifest, and deletes that.
func TestMomentaryDigestIsNotFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := confirming(t)
		mangled := w.Registry.Publish(velum, "4.0.0-rev1")
		w.meanwhile(func(int) { w.Registry.Tag(velum, "4.0.0-rev1", first.Digest) })
		s := w.poll()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
		assert.Empty(t, w.Node.Names(mangled.Digest))
		w.idle()
	})
}

func TestHeartbeatsContinueWhileTheLoopConfirms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		w.Policy.ConfirmAfter = time.Hour
		l := start(t, w, 0, 30*time.Second)
		defer l.end()
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		l.manager.mu.Lock()
		defer l.manager.mu.Unlock()
		assert.LessOrEqual(t, l.manager.gap, 30*time.Second)
	})
}

func TestSpreadOfStagingUnderAWrongClock(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Policy.StageDelay = time.Hour
	w.restart()
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Clock.Add(10 * 365 * 24 * time.Hour)
	w.poll()
	w.Clock.Add(-10 * 365 * 24 * time.Hour)
	w.observe()
	assert.NotEmpty(t, w.Node.Names(next.Digest))
}

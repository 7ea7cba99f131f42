// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

// pulling is a loop on a node that runs velum and db, with a pull that lasts until the loop ends.
func pulling(t *testing.T, before func(l *looped)) *looped {
	t.Helper()
	l := observed(t)
	l.Registry.Release(mariadb, "10.0", 1, "1.1")
	l.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0"))
	_, err := l.Check(t.Context(), nil)
	require.NoError(t, err)
	pass(time.Minute)
	require.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
	before(l)
	l.Node.OnStage = func(ctx context.Context, _ release.Release) error { <-ctx.Done(); return ctx.Err() }
	l.Registry.Release(velum, "4.0.0", 1, "1.2")
	go func() { _, _ = l.Check(t.Context(), nil) }()
	pass(time.Minute)
	return l
}

// An observation during a cycle is added to the last cycle's status, once.
func TestObservationBesideACycleIsAddedToItsStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pulling(t, func(l *looped) {
			l.Node.SetKubelet(false)
			l.Node.Restart("db.yaml", "db")
			pass(10 * time.Second)
		})
		require.Equal(t, "db.yaml: db does not run (exit code 0)", l.Status().Reason)
		found := l.Status().Since
		l.Node.Restart("velum.yaml", "velum")
		pass(2 * time.Second)
		s := l.Status()
		assert.Equal(t, "db.yaml: db does not run (exit code 0); velum.yaml: velum does not run (exit code 0)", s.Reason)
		assert.Equal(t, found, s.Since, "it has failed since the first one ended")
		l.end()
	})
}

// A container that was not started yet may be about to be.
func TestMomentarilyMissingContainerIsNotFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pulling(t, func(*looped) {})
		before := l.Status()
		l.Node.RemoveContainer("velum.yaml", "velum")
		l.Node.Tell(watch.RuntimeEvent{})
		pass(2 * time.Second)
		assert.Equal(t, before.State, l.Status().State, l.Status().Reason)
		l.end()
	})
}

// A container that was started in a long cycle, and that the cycle so does not know, is seen
// to end.
func TestNewContainerThatEndsInALongCycleIsFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pulling(t, func(*looped) {})
		l.Node.Restart("velum.yaml", "velum")
		pass(10 * time.Second)
		require.NotEqual(t, status.StateFailed, l.Status().State, l.Status().Reason)
		l.Node.SetKubelet(false)
		l.Node.Restart("velum.yaml", "velum")
		pass(2 * time.Second)
		assert.Equal(t, status.StateFailed, l.Status().State)
		l.end()
	})
}

// Who is not started is waited for as long as that is believed, and no longer.
func TestContainerThatIsNotStartedIsFailedInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		l.Node.SetKubelet(false)
		l.Node.PutPodManifest("other.yaml", rendered("other", "other="+velum+":4.0.0-rev1"))
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		down := image(l.Status(), "other.yaml", "other").Down
		require.NotNil(t, down)
		pass(down.Since.Add(5*time.Minute - time.Second).Sub(l.now()))
		assert.Equal(t, status.StateApplying, l.Status().State, l.Status().Reason)
		pass(2 * time.Second)
		assert.Equal(t, status.StateFailed, l.Status().State, l.Status().Reason)
	})
}

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

// A pod manifest that somebody else puts there: kubelet starts it, and nobody tells the agent but the event.
func TestNewPodIsShownWithinTwoSecondsOfItsStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		l.Registry.Release(mariadb, "10.0", 1, "1.1")
		l.Node.PutPodManifest("db.yaml", podYAML("db", "db="+mariadb+":10.0"))
		l.Node.Sync()
		pass(2 * time.Second)
		assert.NotNil(t, image(l.Status(), "db.yaml", "db").Running)
	})
}

// Pods of others start at any time. Each costs a list of the containers at most, and no observation of the node.
func TestStartsOfOthersCauseNoObservation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		before := l.Status().Written
		for n := range 1000 {
			l.Node.Tell(watch.RuntimeEvent{ContainerID: "other" + string(rune('a'+n%20))})
		}
		pass(5 * time.Second)
		assert.Equal(t, before, l.Status().Written)
	})
}

// A container that kubelet starts anew during a pull of hours runs, with what it took.
func TestContainerStartedDuringAPullIsShownWithinTwoSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		pulling := make(chan struct{})
		l.Node.OnStage = func(ctx context.Context, _ release.Release) error {
			select {
			case <-pulling:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		second := l.Registry.Release(velum, "4.0.0", 1, "1.2")
		go func() { _, _ = l.Check(t.Context(), nil) }()
		pass(time.Minute)
		changed := l.Changed()
		l.Node.Restart("velum.yaml", "velum")
		pass(2 * time.Second)
		i := image(l.Status(), "velum.yaml", "velum")
		require.NotNil(t, i.Running)
		assert.Equal(t, second.Digest, i.Running.Digest)
		assert.True(t, isClosed(changed), "clients are told")
		assert.Equal(t, status.ActivityChecking, l.Status().Activity)
		close(pulling)
	})
}

// A pod that the last cycle wrote, and that kubelet starts during the pull after it.
func TestNewPodStartedDuringAPullIsShownWithinTwoSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		l.Node.SetKubelet(false)
		db := l.Registry.Release(mariadb, "10.0", 1, "1.1")
		l.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0"))
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		require.NotEmpty(t, l.Node.PodManifest("db.yaml"))
		require.NotNil(t, image(l.Status(), "db.yaml", "db").Down)
		l.Node.OnStage = func(ctx context.Context, _ release.Release) error { <-ctx.Done(); return ctx.Err() }
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		go func() { _, _ = l.Check(t.Context(), nil) }()
		pass(time.Minute)
		l.Node.SetKubelet(true)
		l.Node.Sync()
		pass(2 * time.Second)
		i := image(l.Status(), "db.yaml", "db")
		require.NotNil(t, i.Running)
		assert.Equal(t, db.Digest, i.Running.Digest)
		assert.Nil(t, i.Down)
	})
}

// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

// PodsUnderTest is a node.Pods on a node with a running kubelet, and functions that change that node.
type PodsUnderTest struct {
	Pods node.Pods
	// Run starts a static pod with an init container and a regular one, both with the reference and pull policy Always.
	Run func(t *testing.T) RunningPod
	// Move publishes a new image and moves the reference to it; it returns the image id.
	Move func(t *testing.T, ref release.Reference) digest.Digest
	// Wait limits how long kubelet may take; it depends on the world.
	Wait time.Duration
}

// RunningPod is a pod started by PodsUnderTest.Run.
type RunningPod struct {
	Name, Namespace string // as CRI shows it, with the node's name
	Container, Init string
	Ref             release.Reference
	Image           digest.Digest // image id
}

// TestPods asserts the behavior of a node.Pods.
func TestPods(t *testing.T, open func(t *testing.T) PodsUnderTest) {
	for name, test := range map[string]func(*testing.T, PodsUnderTest){
		"what runs is shown":                              podsShow,
		"a stopped container comes back on the new image": podsStop,
		"stopping what is gone is no error":               podsStopNothing,
		"images are found by name":                        podsLists,
		"pull fetches what the tag names now":             podsPull,
		"the filesystem of images is known":               podsFilesystem,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// await returns the pod's container once want accepts it.
func (s PodsUnderTest) await(t *testing.T, p RunningPod, name string, want func(node.Container) bool) node.Container {
	t.Helper()
	var found node.Container
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		all, _, err := s.Pods.Containers(t.Context())
		require.NoError(c, err)
		for _, k := range all {
			if k.Pod == p.Name && k.Namespace == p.Namespace && k.Name == name && want(k) {
				found = k
				return
			}
		}
		assert.Fail(c, "not there yet", "%v", all)
	}, max(s.Wait, time.Second), 50*time.Millisecond)
	return found
}

func runs(c node.Container) bool { return c.Running }

func podsShow(t *testing.T, s PodsUnderTest) {
	p := s.Run(t)
	c := s.await(t, p, p.Container, runs)
	assert.NotEmpty(t, c.ID)
	assert.NotEmpty(t, c.Sandbox)
	assert.False(t, c.StartedAt.IsZero())
	assert.Equal(t, p.Image, c.Image)
	assert.NotEmpty(t, c.Digests)
	i := s.await(t, p, p.Init, func(c node.Container) bool { return !c.Running && !c.StartedAt.IsZero() })
	assert.Zero(t, i.ExitCode)
	assert.Equal(t, p.Image, i.Image)
	assert.Equal(t, c.Sandbox, i.Sandbox)
	all, used, err := s.Pods.Containers(t.Context())
	require.NoError(t, err)
	for _, k := range all {
		assert.Contains(t, used, k.Image, "%s/%s", k.Pod, k.Name)
	}
}

func podsFilesystem(t *testing.T, s PodsUnderTest) {
	fs, err := s.Pods.Filesystem(t.Context())
	require.NoError(t, err)
	assert.True(t, filepath.IsAbs(fs.Path), fs.Path)
	assert.Positive(t, fs.Free)
	assert.Greater(t, fs.Size, fs.Free)
}

func podsStop(t *testing.T, s PodsUnderTest) {
	p := s.Run(t)
	old := s.await(t, p, p.Container, runs)
	init := s.await(t, p, p.Init, func(c node.Container) bool { return !c.Running })
	image := s.Move(t, p.Ref)
	require.NoError(t, s.Pods.Stop(t.Context(), old.ID, 5*time.Second))
	next := s.await(t, p, p.Container, func(c node.Container) bool { return c.Running && c.ID != old.ID })
	assert.Equal(t, image, next.Image)
	assert.Equal(t, old.Sandbox, next.Sandbox)
	assert.Greater(t, next.Restarts, old.Restarts)
	again := s.await(t, p, p.Init, func(c node.Container) bool { return !c.Running })
	assert.Equal(t, init.ID, again.ID, "init containers do not run again")
}

func podsStopNothing(t *testing.T, s PodsUnderTest) {
	s.Run(t)
	id := digest.FromString("unknown").Encoded()
	require.NoError(t, s.Pods.Stop(t.Context(), id, 5*time.Second))
	require.NoError(t, s.Pods.Clear(t.Context(), id))
	up, err := s.Pods.SandboxReady(t.Context(), id)
	require.NoError(t, err)
	assert.False(t, up)
}

func podsLists(t *testing.T, s PodsUnderTest) {
	p := s.Run(t)
	s.await(t, p, p.Container, runs)
	id, ok, err := s.Pods.Lists(t.Context(), p.Ref.String())
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, p.Image, id)
	_, ok, err = s.Pods.Lists(t.Context(), p.Ref.Repository+":unknown")
	require.NoError(t, err)
	assert.False(t, ok)
}

func podsPull(t *testing.T, s PodsUnderTest) {
	p := s.Run(t)
	c := s.await(t, p, p.Container, runs)
	image := s.Move(t, p.Ref)
	id, err := s.Pods.Pull(t.Context(), p.Ref)
	require.NoError(t, err)
	assert.Equal(t, image, id)
	listed, ok, err := s.Pods.Lists(t.Context(), p.Ref.String())
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, image, listed)
	still := s.await(t, p, p.Container, runs)
	assert.Equal(t, c.ID, still.ID, "a pull restarts nothing")
	_, err = s.Pods.Pull(t.Context(), release.Reference{Repository: p.Ref.Repository, Tag: "unknown"})
	require.Error(t, err)
}

// EventsUnderTest is a runtime with events, and functions that cause them. Start, End and Other reach the watchers that
// are already connected.
type EventsUnderTest struct {
	Events     watch.RuntimeEvents
	Start, End func(t *testing.T, container string)
	// Other causes an event that is neither start nor end of a container: the end of a probe of kubelet. Nil: the
	// runtime has no such event.
	Other func(t *testing.T, container string)
	// Restart makes the runtime go away and come back.
	Restart func(t *testing.T)
}

// TestRuntimeEvents asserts the behavior of a watch.RuntimeEvents.
func TestRuntimeEvents(t *testing.T, fresh func(t *testing.T) EventsUnderTest) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, EventsUnderTest){
		"the first event says that something may have been missed": func(t *testing.T, e EventsUnderTest) {
			heard, _ := w(t, e)
			assert.Zero(t, <-heard)
		},
		"starts and ends are heard once, in their order": func(t *testing.T, e EventsUnderTest) {
			heard, _ := w(t, e)
			assert.Zero(t, <-heard)
			e.Start(t, "a")
			e.Start(t, "b")
			e.End(t, "a")
			if e.Other != nil {
				e.Other(t, "b")
			}
			e.Start(t, "c")
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "a"}, <-heard)
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "b"}, <-heard)
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "a", Ended: true}, <-heard)
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "c"}, <-heard)
		},
		"a runtime that was away is heard again, and has perhaps told more": func(t *testing.T, e EventsUnderTest) {
			heard, _ := w(t, e)
			assert.Zero(t, <-heard)
			e.Start(t, "a")
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "a"}, <-heard)
			e.Restart(t)
			assert.Zero(t, <-heard)
			e.End(t, "a")
			last := <-heard
			for last == (watch.RuntimeEvent{}) { // when it went away, and when it came back
				last = <-heard
			}
			assert.Equal(t, watch.RuntimeEvent{ContainerID: "a", Ended: true}, last)
		},
		"who does not want to hear any more hears nothing": func(t *testing.T, e EventsUnderTest) {
			heard, stop := w(t, e)
			assert.Zero(t, <-heard)
			stop()
			assert.Empty(t, heard)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fresh(t))
		})
	}
}

// w hears events until stop, which waits for the end of Watch.
func w(t *testing.T, e EventsUnderTest) (heard <-chan watch.RuntimeEvent, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan watch.RuntimeEvent, manyEvents), make(chan struct{})
	go func() {
		defer close(ended)
		e.Events.Watch(ctx, func(event watch.RuntimeEvent) { events <- event })
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return events, stop
}

// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

// observed is a loop with runtime events, on a node that runs velum. Both have the bubble's
// clock.
func observed(t *testing.T) *looped {
	t.Helper()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	l := &looped{world: w, manager: &manager{}, ended: make(chan error, 1)}
	a := w.Agent()
	a.Now, a.Events, w.Node.Now = l.now, w.Node, l.now
	l.agent = a
	l.Loop = agent.NewLoop(a, l.manager, 12*time.Hour, 0, "machine")
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	go func() { l.ended <- l.Run(ctx) }()
	s, err := l.Check(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
	pass(time.Minute)
	return l
}

func TestEndedContainerIsFailedWithinTwoSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		end := l.now()
		l.Node.SetKubelet(false)
		l.Node.Restart("velum.yaml", "velum")
		pass(2 * time.Second)
		s := l.Status()
		require.Equal(t, status.StateFailed, s.State)
		assert.Equal(t, "velum.yaml: velum does not run (exit code 0)", s.Reason)
		i := image(s, "velum.yaml", "velum")
		assert.Nil(t, i.Running)
		require.NotNil(t, i.Down)
		assert.True(t, i.Down.Since.Equal(end))
		assert.Equal(t, "failed", l.Grain.Last().State)
		assert.Equal(t, s.Reason, l.Grain.Last().Reason)
		pass(time.Hour)
		assert.Equal(t, status.StateFailed, l.Status().State, "as long as it is so")

		l.Node.SetKubelet(true)
		l.Node.Sync()
		pass(2 * time.Second)
		s = l.Status()
		assert.Equal(t, status.StateCurrent, s.State, "and not for ever: "+s.Reason)
		assert.NotNil(t, image(s, "velum.yaml", "velum").Running)
	})
}

// What kubelet starts again at once was never seen to be down.
func TestContainerRestartedAtOnceIsNotFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		l.Node.Restart("velum.yaml", "velum")
		pass(2 * time.Second)
		assert.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
		assert.Equal(t, 2, l.Node.Starts("velum.yaml", "velum"))
	})
}

// Containers that end during an hour-long pull are reported.
func TestContainerEndedDuringAPullIsFailedWithinTwoSeconds(t *testing.T) {
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
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		go func() { _, _ = l.Check(t.Context(), nil) }()
		pass(time.Minute)
		l.Node.SetKubelet(false)
		l.Node.Restart("velum.yaml", "velum")
		changed := l.Changed()
		pass(2 * time.Second)
		s := l.Status()
		assert.Equal(t, status.StateFailed, s.State, s.Reason)
		assert.NotNil(t, image(s, "velum.yaml", "velum").Down)
		select {
		case <-changed:
		default:
			t.Error("nobody was told")
		}
		close(pulling)
		pass(time.Second)
		assert.Equal(t, status.StateFailed, l.Status().State, l.Status().Reason)
		assert.NotEmpty(t, l.Status().Updates, "and the pull went on")
	})
}

// Containers of others, and probes, cause no observation; a flood of events causes
// one in a second.
func TestEventsCauseAtMostOneObservationASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		pass(9 * time.Minute)
		before := l.Status().Written
		l.Node.Tell(watch.RuntimeEvent{ContainerID: "other", Ended: true})
		l.Node.Tell(watch.RuntimeEvent{ContainerID: "other"})
		pass(5 * time.Second)
		assert.Equal(t, before, l.Status().Written, "nothing of ours")
		for range 100 {
			l.Node.Tell(watch.RuntimeEvent{})
		}
		pass(time.Second)
		first := l.Status().Written
		assert.True(t, first.After(before))
		pass(500 * time.Millisecond)
		assert.Equal(t, first, l.Status().Written)
	})
}

type kubeletSays struct{ waiting []node.Waiting }

func (kubeletSays) Unready(context.Context, apply.PodReadiness) (apply.Verdict, error) {
	return apply.Verdict{}, nil
}

func (k *kubeletSays) Waiting(context.Context) ([]node.Waiting, error) { return k.waiting, nil }

// A new pod is being started, until kubelet says that it cannot be, or for too long.
func TestNewPodIsStartingAndThenFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Node.SetKubelet(false)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	says := &kubeletSays{}
	w.restart()
	w.agent.Readiness = says
	s := w.check()
	require.Equal(t, status.StateApplying, s.State, s.Reason)
	assert.Equal(t, "velum.yaml: velum is not started yet", s.Reason)
	wait := node.Waiting{Namespace: "default", Pod: "velum-node1", Container: "velum", Reason: "ContainerCreating"}
	says.waiting = []node.Waiting{wait}
	w.Clock.Add(time.Minute)
	assert.Equal(t, "velum.yaml: velum is not started yet: ContainerCreating", w.observe().Reason)
	wait.Reason, wait.Message = "ErrImagePull", "connection refused"
	says.waiting = []node.Waiting{wait}
	s = w.observe()
	assert.Equal(t, status.StateFailed, s.State)
	assert.Equal(t, "velum.yaml: velum was not started: ErrImagePull: connection refused", s.Reason)
	says.waiting = nil
	assert.Equal(t, status.StateApplying, w.observe().State)
	w.Clock.Add(4 * time.Minute)
	s = w.observe()
	assert.Equal(t, status.StateFailed, s.State, "nobody believes it any more")
	w.Node.SetKubelet(true)
	w.Node.Sync()
	assert.Equal(t, status.StateCurrent, w.observe().State)
}

// The node has booted, the registry is away, and kubelet can start nothing.
func TestPodDownAfterABootIsFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	require.Equal(t, status.StateCurrent, w.check().State)
	w.Registry.Down(errors.New("connection refused"))
	w.Node.SetKubelet(false)
	w.Node.Restart("velum.yaml", "velum")
	w.restart()
	s := w.observe()
	assert.Equal(t, status.StateFailed, s.State)
	assert.Equal(t, "velum.yaml: velum does not run (exit code 0)", s.Reason)
}

// What has done its work need not run.
func TestCompletedContainersAreNotDown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod   string
		state status.State
	}{
		"an init container":         {string(podYAML("p", "p="+velum+":4.0.0-rev1", "init:i="+velum+":4.0.0-rev1")), status.StateCurrent},
		"restartPolicy Never":       {string(podYAML("p", "p="+velum+":4.0.0-rev1")) + "  restartPolicy: Never\n", status.StateCurrent},
		"restartPolicy OnFailure":   {string(podYAML("p", "p="+velum+":4.0.0-rev1")) + "  restartPolicy: OnFailure\n", status.StateCurrent},
		"restartPolicy is Always's": {string(podYAML("p", "p="+velum+":4.0.0-rev1")), status.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Registry.Release(velum, "4.0.0", 1, "1.1")
			w.Node.PutPodManifest("p.yaml", []byte(c.pod))
			w.check()
			if name != "an init container" {
				w.Node.SetKubelet(false)
				w.Node.Restart("p.yaml", "p")
			}
			s := w.observe()
			assert.Equal(t, c.state, s.State, s.Reason)
		})
	}
}

// A template that renames its pod, or puts it elsewhere, waits for approval: until then
// kubelet runs the pod by the name that it had.
func TestRenamedPodIsNotDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	require.Equal(t, status.StateCurrent, w.check().State)
	w.Node.PutTemplate("velum.yaml", podYAML("dashboard", "velum="+velum+":4.0.0"))
	s := w.observe()
	assert.Nil(t, image(s, "velum.yaml", "velum").Down)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	w.Clock.Add(record.ApprovalAge)
	s = w.observe()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
}

// A node on which containers end all the time, and that is slow to be observed, is polled
// in its slot all the same.
func TestObservationsDoNotDelayAPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		runtime := &slowRuntime{Node: l.Node}
		runtime.slow.Store(true)
		l.agent.Pods = runtime
		l.Registry.Counts()
		for slot := *l.Status().NextCheck; l.now().Before(slot.Add(10 * time.Minute)); {
			l.Node.Tell(watch.RuntimeEvent{ContainerID: "other", Ended: true})
			l.Node.Tell(watch.RuntimeEvent{})
			pass(10 * time.Second)
		}
		assert.Equal(t, 1, l.Registry.Counts().Heads)
	})
}

// Nor does it keep anybody from seeing that it is back.
func TestContainerThatRecoversDuringAPullIsNotFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		l.Node.OnStage = func(ctx context.Context, _ release.Release) error { <-ctx.Done(); return ctx.Err() }
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		go func() { _, _ = l.Check(t.Context(), nil) }()
		pass(time.Minute)
		before := l.Status()
		l.Node.SetKubelet(false)
		l.Node.Restart("velum.yaml", "velum")
		pass(2 * time.Second)
		require.Equal(t, status.StateFailed, l.Status().State, l.Status().Reason)
		changed := l.Changed()
		l.Node.SetKubelet(true)
		l.Node.Sync()
		pass(2 * time.Second)
		s := l.Status()
		assert.Equal(t, before.State, s.State, s.Reason)
		assert.Equal(t, before.Reason, s.Reason)
		assert.Nil(t, image(s, "velum.yaml", "velum").Down)
		assert.NotNil(t, image(s, "velum.yaml", "velum").Running)
		assert.Equal(t, before.Activity, s.Activity, "the pull goes on")
		assert.NotEmpty(t, s.Activity)
		select {
		case <-changed:
		default:
			t.Error("nobody was told")
		}
		l.end()
	})
}

// However often something ends in a long cycle, the node is observed once after it.
func TestEventsInALongCycleCauseOneObservation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		pulling := make(chan struct{})
		l.Node.OnStage = func(context.Context, release.Release) error { <-pulling; return nil }
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		go func() { _, _ = l.Check(t.Context(), nil) }()
		for range 100 {
			l.Node.Tell(watch.RuntimeEvent{ContainerID: "other", Ended: true})
			pass(2 * time.Second)
		}
		l.Disk.Saves()
		close(pulling)
		pass(time.Minute)
		assert.LessOrEqual(t, l.Disk.Saves(), 2, "the check, and one observation")
	})
}

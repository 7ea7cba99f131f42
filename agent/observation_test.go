// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// A container that started during a long cycle, and is therefore unknown to the cycle, is reported when it ends.
func TestNewContainerThatEndsInALongCycleIsFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		l.holdPulls()
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		go func() { _, _ = l.Check(t.Context(), nil) }()
		pass(time.Minute)
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

// The agent waits for a container to start for a limited time.
func TestContainerThatIsNotStartedIsFailedInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		l.Node.SetKubelet(false)
		l.Node.PutPodManifest("other.yaml", rendered("other", "other="+velum+":4.0.0-rev1"))
		l.checks()
		down := image(l.Status(), "other.yaml", "other").Down
		require.NotNil(t, down)
		pass(down.Since.Add(5*time.Minute - time.Second).Sub(l.now()))
		assert.Equal(t, status.StateApplying, l.Status().State, l.Status().Reason)
		pass(2 * time.Second)
		assert.Equal(t, status.StateFailed, l.Status().State, l.Status().Reason)
	})
}

// Changes between two cycles of one agent that it must notice. Files keep their length, because a file system may keep
// their times, too.
var moves = map[string]func(w *world){
	"edited pod manifest": func(w *world) {
		w.Node.PutPodManifest("db.yaml", []byte(strings.Replace(w.Node.PodManifest("db.yaml"), "name: db", "name: bd", 1)))
	},
	"edited comment": func(w *world) {
		w.Node.PutPodManifest("db.yaml", []byte(strings.Replace(w.Node.PodManifest("db.yaml"), "# one", "# two", 1)))
	},
	"edited template": func(w *world) { w.Node.PutTemplate("db.yaml", annotated("two", mariadb+":4.0.0-rev1")) },
	"followed tag":    func(w *world) { w.Node.PutTemplate("db.yaml", annotated("one", mariadb+":4.0.0-rev2")) },
	"broken template": func(w *world) { w.Node.PutTemplate("db.yaml", []byte("{")) },
	"no template":     func(w *world) { w.Node.PutTemplate("db.yaml", nil) },
	"unreadable":      func(w *world) { w.Node.PutBroken("db.yaml", errors.New("is a symlink")) },
	"another tag":     func(w *world) { w.Registry.Release(mariadb, "4.0.0", 3, "1.1"); w.check() },
	"pull policy":     func(w *world) { w.agent.Policy.PullPolicy = "IfNotPresent" },
	"rule": func(w *world) {
		w.agent.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Follow: "4.0.0-rev9"} }
	},
	"rewrite": func(w *world) {
		w.Registry.Release("r.example/mariadb", "4.0.0", 1, "1.1")
		w.agent.Policy.Rewrites = []manifests.Rewrite{{From: "registry.suse.com/caasp/v4", To: "r.example"}}
		w.check()
	},
}

// annotated returns the template of db.yaml with a comment.
func annotated(comment, image string) []byte {
	return append(podYAML("db", "db="+image), "# "+comment+"\n"...)
}

func TestParsedPodsAreNotStale(t *testing.T) {
	t.Parallel()
	for name, move := range moves {
		parallel(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.Node.SetKubelet(true)
			w.Registry.Release(mariadb, "4.0.0", 1, "1.1")
			w.Node.PutTemplate("db.yaml", annotated("one", mariadb+":4.0.0-rev1"))
			w.check()
			w.observe()
			before, anew := w.plans()
			require.Equal(t, anew, before)
			move(w)
			after, anew := w.plans()
			assert.Equal(t, anew, after)
			assert.NotEqual(t, before, after, "the move is not seen")
		})
	}
}

// plans returns the plan from the cache of parsed pods, and without the cache.
func (w *world) plans() (cached, anew plan.Plan) {
	w.t.Helper()
	cached, anew, err := w.agent.PlanBothWays(w.t.Context())
	require.NoError(w.t, err)
	return cached, anew
}

// holdPulls makes pulls wait until the channel is closed, or they are interrupted.
func (l *looped) holdPulls() chan struct{} {
	pulling := make(chan struct{})
	l.Node.OnStage = func(ctx context.Context, _ release.Release) error {
		select {
		case <-pulling:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	return pulling
}

// observed returns a loop with runtime events on a node that runs velum. Both use the bubble's clock.
func observed(t *testing.T) *looped {
	t.Helper()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.agent = w.Agent()
	w.agent.Events, w.Node.Now = w.Node, time.Now
	l := startAgent(t, w, w.agent, 12*time.Hour, 0)
	w.Node.Now = l.now
	s := l.checks()
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
	pass(time.Minute)
	return l
}

func TestEndedContainerIsFailedWithinTwoSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		end := l.now()
		l.Node.SetKubelet(false)
		l.Node.Restart("velum.yaml", "velum")
		pass(2 * time.Second)
		s := l.Status()
		require.Equal(t, status.StateFailed, s.State)
		assert.Equal(t, "velum.yaml: velum is not running (exit code 0)", s.Reason)
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

// A container that kubelet restarts at once is never reported as down.
func TestContainerRestartedAtOnceIsNotFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
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
		pulling := l.holdPulls()
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
			t.Error("no client was told")
		}
		close(pulling)
		pass(time.Second)
		assert.Equal(t, status.StateFailed, l.Status().State, l.Status().Reason)
		assert.NotEmpty(t, l.Status().Updates, "and the pull went on")
	})
}

type kubeletSays struct{ waiting []node.Waiting }

func (kubeletSays) Unready(context.Context, apply.PodReadiness) (apply.Verdict, error) {
	return apply.Verdict{}, nil
}

func (k *kubeletSays) Waiting(context.Context) ([]node.Waiting, error) { return k.waiting, nil }

// A new pod is starting until kubelet reports that it cannot start it, or until it takes too long.
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
	assert.Equal(t, "velum.yaml: velum has not started yet", s.Reason)
	wait := node.Waiting{Namespace: "default", Pod: "velum-node1", Container: "velum", Reason: "ContainerCreating"}
	says.waiting = []node.Waiting{wait}
	w.Clock.Add(time.Minute)
	assert.Equal(t, "velum.yaml: velum has not started yet: ContainerCreating", w.observe().Reason)
	wait.Reason, wait.Message = "ErrImagePull", "connection refused"
	says.waiting = []node.Waiting{wait}
	s = w.observe()
	assert.Equal(t, status.StateFailed, s.State)
	assert.Equal(t, "velum.yaml: velum was not started: ErrImagePull: connection refused", s.Reason)
	says.waiting = nil
	assert.Equal(t, status.StateApplying, w.observe().State)
	w.Clock.Add(4 * time.Minute)
	s = w.observe()
	assert.Equal(t, status.StateFailed, s.State, "it has taken too long")
	w.Node.SetKubelet(true)
	w.Node.Sync()
	assert.Equal(t, status.StateCurrent, w.observe().State)
}

// After a boot the registry is away, and kubelet cannot start anything.
func TestPodDownAfterABootIsFailed(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Registry.Down(errors.New("connection refused"))
	w.Node.SetKubelet(false)
	w.Node.Restart("velum.yaml", "velum")
	w.restart()
	s := w.observe()
	assert.Equal(t, status.StateFailed, s.State)
	assert.Equal(t, "velum.yaml: velum is not running (exit code 0)", s.Reason)
}

// A template that renames its pod or moves it to another namespace waits for approval: until then kubelet runs the pod
// under its old name.
func TestRenamedPodIsNotDown(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Node.PutTemplate("velum.yaml", podYAML("dashboard", "velum="+velum+":4.0.0"))
	s := w.observe()
	assert.Nil(t, image(s, "velum.yaml", "velum").Down)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	w.Clock.Add(record.ApprovalAge)
	s = w.observe()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
}

// A node whose containers end all the time and whose observation is slow is still polled in its slot.
func TestObservationsDoNotDelayAPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		runtime := &slowRuntime{Node: l.Node}
		runtime.slow.Store(true)
		l.agent.Pods = runtime
		l.Registry.Counts()
		for slot := *l.Status().NextCheck; l.now().Before(slot.Add(10 * time.Minute)); {
			l.Node.Tell(watch.RuntimeEvent{})
			pass(10 * time.Second)
		}
		assert.Equal(t, 1, l.Registry.Counts().Heads)
	})
}

// However many containers end during a long cycle, the node is observed once after it.
func TestEventsInALongCycleCauseOneObservation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		pulling := l.holdPulls()
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		go func() { _, _ = l.Check(t.Context(), nil) }()
		for range 100 {
			l.Node.Restart("velum.yaml", "velum")
			pass(2 * time.Second)
		}
		l.Disk.Saves()
		close(pulling)
		pass(time.Minute)
		assert.LessOrEqual(t, l.Disk.Saves(), 2, "the check, and one observation")
	})
}

// The same for an apply by mode auto.
func TestAutoApplyDoesNotReportItsContainerAsFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		a := l.Agent()
		a.Now, a.Events, a.Policy.Auto = l.now, l.Node, true
		require.NoError(t, l.Reconfigure(t.Context(), a, 12*time.Hour))
		pass(time.Minute)
		l.Node.PutTemplate("velum.yaml", podYAML("velum", "one="+velum+":4.0.0", "two="+velum+":4.0.0"))
		l.Node.PutPodManifest("velum.yaml", rendered("velum", "one="+velum+":4.0.0-rev1", "two="+velum+":4.0.0-rev1"))
		var restarts atomic.Bool // set by the apply of mode auto
		var stops atomic.Int32
		l.Node.OnStop = func(string) error {
			if !restarts.Load() {
				return nil
			}
			switch stops.Add(1) {
			case 1:
				l.Node.SetKubelet(false)
			case 2:
				slowly(3 * time.Second) // the grace period; the first container is down
				l.Node.SetKubelet(true)
			}
			return nil
		}
		l.checks()
		pass(time.Minute)
		next := l.Registry.Release(velum, "4.0.0", 1, "1.2")
		states, stop := watched(l)
		restarts.Store(true)
		pass(13 * time.Hour)
		stop()
		require.Equal(t, int32(2), stops.Load())
		l.runs("velum.yaml", "two", next.Digest)
		assert.NotContains(t, states(), status.StateFailed)
	})
}

// A reload does not restart the five minutes.
func TestUnstartedPodStaysFailedAfterAReload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		l.Node.SetKubelet(false)
		l.Node.PutPodManifest("other.yaml", rendered("other", "other="+velum+":4.0.0-rev1"))
		l.checks()
		pass(time.Hour)
		down := image(l.Status(), "other.yaml", "other").Down
		require.NotNil(t, down)
		require.Equal(t, status.StateFailed, l.Status().State)
		a := l.Agent()
		a.Now, a.Events = l.now, l.Node
		require.NoError(t, l.Reconfigure(t.Context(), a, 12*time.Hour))
		assert.Equal(t, status.StateFailed, l.Status().State, l.Status().Reason)
		assert.Equal(t, down.Since, image(l.Status(), "other.yaml", "other").Down.Since)
	})
}

// All clients report the status in the same words.
func TestDownIsReportedAlikeToAllClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Node.SetKubelet(false)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.check()
	w.Clock.Add(time.Hour)
	s := w.observe()
	require.Equal(t, "velum.yaml: velum was not started: no image on the node is named "+velum+":4.0.0-rev1", s.Reason)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	var read status.Status
	require.NoError(t, json.Unmarshal(text, &read))
	assert.Equal(t, "was not started: no image on the node is named "+velum+":4.0.0-rev1", image(read, "velum.yaml", "velum").Down.String())
}

// Another program writes a pod manifest: kubelet starts the pod, and only the event informs the agent.
func TestNewPodIsShownWithinTwoSecondsOfItsStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		l.Registry.Release(mariadb, "10.0", 1, "1.1")
		l.Node.PutPodManifest("db.yaml", podYAML("db", "db="+mariadb+":10.0"))
		l.Node.Sync()
		pass(2 * time.Second)
		assert.NotNil(t, image(l.Status(), "db.yaml", "db").Running)
	})
}

// A container that kubelet restarts during an hours-long pull is reported as running, with its new digest.
func TestContainerStartedDuringAPullIsShownWithinTwoSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		pulling := l.holdPulls()
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

// kubelet starts a pod that the last cycle wrote during the next cycle's pull.
func TestNewPodStartedDuringAPullIsShownWithinTwoSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		l.Node.SetKubelet(false)
		db := l.Registry.Release(mariadb, "10.0", 1, "1.1")
		l.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0"))
		l.checks()
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

// containerd serves its events before CRI: the observation after the reconnection fails, and no other event follows.
func TestNodeThatCannotBeObservedIsObservedAgainSoon(t *testing.T) {
	t.Parallel()
	for name, earlier := range map[string]func(l *looped){
		"a current node": func(*looped) {},
		"a node that has been failed for a day": func(l *looped) {
			l.Node.SetKubelet(false)
			l.Node.Restart("velum.yaml", "velum")
			pass(24 * time.Hour)
			l.Node.SetKubelet(true)
		},
	} {
		run(t, name, func(t *testing.T) {
			l := observed(t)
			earlier(l)
			l.Node.Blind(errors.New("server is not initialized yet"))
			l.Node.Tell(watch.RuntimeEvent{})
			pass(2 * time.Second)
			require.True(t, l.Status().HasReason(status.KindNode), l.Status().Reason)
			l.Node.Sync()
			pass(10 * time.Second)
			l.Node.Blind(nil)
			pass(15 * time.Second)
			assert.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
		})
	}
}

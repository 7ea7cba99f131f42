// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// pulling returns a loop on a node that runs velum and db, with a pull that lasts until the loop ends.
func pulling(t *testing.T, before func(l *looped)) *looped {
	t.Helper()
	l := observed(t)
	l.Registry.Release(mariadb, "10.0", 1, "1.1")
	l.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0"))
	l.checks()
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
func TestObservationDuringACycleIsAddedToItsStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := pulling(t, func(l *looped) {
			l.Node.SetKubelet(false)
			l.Node.Restart("db.yaml", "db")
			pass(10 * time.Second)
		})
		require.Equal(t, "db.yaml: db is not running (exit code 0)", l.Status().Reason)
		found := l.Status().Since
		l.Node.Restart("velum.yaml", "velum")
		pass(2 * time.Second)
		s := l.Status()
		assert.Equal(t, "db.yaml: db is not running (exit code 0); velum.yaml: velum is not running (exit code 0)", s.Reason)
		assert.Equal(t, found, s.Since, "it has failed since the first one ended")
		l.end()
	})
}

// A container that has not started yet may be about to start.
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

// A container that started during a long cycle, and is therefore unknown to the cycle, is reported when it ends.
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

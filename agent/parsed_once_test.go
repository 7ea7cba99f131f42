// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// What moves between two cycles of one agent, and is not to be missed. Files
// keep their length: a file system may keep their times, too.
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

// annotated is the template of db.yaml with a comment.
func annotated(comment, image string) []byte {
	return append(podYAML("db", "db="+image), "# "+comment+"\n"...)
}

func TestParsedPodsAreNotStale(t *testing.T) {
	t.Parallel()
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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

// plans are the plan by what is parsed already, and worked out from nothing.
func (w *world) plans() (cached, anew plan.Plan) {
	w.t.Helper()
	cached, anew, err := w.agent.PlanBothWays(w.t.Context())
	require.NoError(w.t, err)
	return cached, anew
}

// BenchmarkSteadyCycle is a poll of twenty images on a node on which nothing
// moves, over the fakes: what the core itself costs.
func BenchmarkSteadyCycle(b *testing.B) {
	w := agenttest.NewWorld()
	w.Node.SetKubelet(true)
	for n := range 20 {
		name := fmt.Sprintf("app%02d", n)
		repository := "registry.suse.com/demo/" + name
		w.Registry.Release(repository, "4.0.0", 1, "1.1")
		w.Node.PutTemplate(name+".yaml", podYAML(name, name+"="+repository+":4.0.0-rev1"))
	}
	a := w.Agent()
	for range 3 {
		_, err := a.Cycle(b.Context(), source.PollDue)
		require.NoError(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s, err := a.Cycle(b.Context(), source.PollDue)
		if err != nil || s.State != status.StateCurrent {
			b.Fatal(s.State, s.Reason, err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"flag"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestMain(m *testing.M) {
	// While rapid makes a failed history shorter, the time of its bubble stands still, so that it would never end.
	if err := flag.Set("rapid.shrinktime", "0s"); err != nil {
		panic(err)
	}
	debug.SetGCPercent(400) // the histories create much garbage and keep little
	goleak.VerifyTestMain(m)
}

const (
	velum   = "registry.suse.com/caasp/v4/velum"
	mariadb = "registry.suse.com/caasp/v4/mariadb"
	etcd    = "registry.suse.com/caasp/v4/etcd"
)

// world is a World with the helpers of a test.
type world struct {
	*agenttest.World
	t     *testing.T
	agent *agent.Agent
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: agenttest.NewWorld(), t: t}
	w.Policy.Rule = newWorldRule
	return w
}

func newWorldRule(string) policy.Rule { return policy.Rule{Updates: tags.Revision} }

// restart restarts the agent with the record on disk and the current policy.
func (w *world) restart() { w.agent = w.Agent() }

func (w *world) cycle(poll source.Poll) status.Status {
	w.t.Helper()
	if w.agent == nil {
		w.restart()
	}
	s, err := w.agent.Cycle(w.t.Context(), poll)
	require.NoError(w.t, err)
	return s
}

// check polls all sources, poll those that are due, observe none.
func (w *world) check() status.Status   { w.t.Helper(); return w.cycle(source.PollAll) }
func (w *world) poll() status.Status    { w.t.Helper(); return w.cycle(source.PollDue) }
func (w *world) observe() status.Status { w.t.Helper(); return w.cycle(source.PollNone) }

func (w *world) apply(names ...string) ([]status.Outcome, status.Status) {
	w.t.Helper()
	out, s, err := w.agent.Apply(w.t.Context(), agent.ApplyRequest{Which: plan.Which{Images: names, All: len(names) == 0}})
	require.NoError(w.t, err)
	return out, s
}

// onFirstStop runs do when the agent stops the first container. It stops the containers of a pod at once.
func (w *world) onFirstStop(do func()) {
	var done atomic.Bool // not a sync.Once: do may stop a container, too
	w.Node.OnStop = func(string) error {
		if !done.Swap(true) {
			do()
		}
		return nil
	}
}

// applies runs an apply and asserts that it succeeds.
func (w *world) applies(names ...string) status.Status {
	w.t.Helper()
	out, s := w.apply(names...)
	require.Equal(w.t, status.ResultApplied, out[0].Result, out[0].Reason)
	return s
}

// killable is a context that a test ends to kill the agent.
func (w *world) killable() (ctx context.Context, kill func()) {
	ctx, kill = context.WithCancel(w.t.Context())
	w.t.Cleanup(kill)
	return ctx, kill
}

// applyWith applies all offers under a context that may end.
func (w *world) applyWith(ctx context.Context) {
	w.t.Helper()
	_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
	require.NoError(w.t, err)
}

// rollback rolls pods, or all, back.
func (w *world) rollback(names ...string) ([]status.Outcome, status.Status) {
	w.t.Helper()
	out, s, err := w.agent.Rollback(w.t.Context(), plan.Which{Images: names, All: len(names) == 0})
	require.NoError(w.t, err)
	return out, s
}

// publish publishes a release of velum and polls.
func (w *world) publish(rev int, build string) release.Release {
	w.t.Helper()
	r := w.Registry.Release(velum, "4.0.0", rev, build)
	w.check()
	return r
}

// retry applies denied releases.
func (w *world) retry() ([]status.Outcome, status.Status) {
	w.t.Helper()
	out, s, err := w.agent.Apply(w.t.Context(), agent.ApplyRequest{Which: plan.All(), Retry: true})
	require.NoError(w.t, err)
	return out, s
}

// runs asserts the digest that a container of a pod manifest runs.
func (w *world) runs(file, container string, d digest.Digest) {
	w.t.Helper()
	c, ok := w.Node.Container(file, container)
	require.True(w.t, ok, "%s/%s is not there", file, container)
	assert.Equal(w.t, d, c.Digests[0], "%s/%s runs another digest", file, container)
}

// idle asserts that another cycle would do nothing.
func (w *world) idle() {
	w.t.Helper()
	plan, err := w.agent.Plan(w.t.Context(), source.PollNone)
	require.NoError(w.t, err)
	assert.Empty(w.t, plan.Steps, "a second cycle has steps")
}

// podYAML returns a pod manifest with containers "name=image" and init containers "init:name=image".
func podYAML(name string, containers ...string) []byte {
	var main, inits strings.Builder
	for _, c := range containers {
		n, image, _ := strings.Cut(c, "=")
		to := &main
		if rest, ok := strings.CutPrefix(n, "init:"); ok {
			n, to = rest, &inits
		}
		to.WriteString("  - name: " + n + "\n    image: " + image + "\n")
	}
	text := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  containers:\n" + main.String()
	if inits.Len() > 0 {
		text += "  initContainers:\n" + inits.String()
	}
	return []byte(text)
}

// rendered returns podYAML as the agent writes it.
func rendered(name string, containers ...string) []byte {
	text := string(podYAML(name, containers...))
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(line)
		if strings.HasPrefix(line, "    image: ") {
			out.WriteString("    imagePullPolicy: Always\n")
		}
	}
	return []byte(out.String())
}

func image(s status.Status, file, container string) status.ImageStatus {
	for _, i := range s.Images {
		if i.PodManifest == file && i.Container == container {
			return i
		}
	}
	return status.ImageStatus{}
}

func podOf(s status.Status, file string) status.PodStatus {
	for _, p := range s.PodManifests {
		if p.PodManifest == file {
			return p
		}
	}
	return status.PodStatus{}
}

// silentKubelet is an apply.Readiness without kubelet's reasons.
type silentKubelet struct{}

func (silentKubelet) Waiting(context.Context) ([]node.Waiting, error) { return nil, nil }

// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/face/metrics"
	"github.com/kubic-project/image-update-agent/tags"
)

// waveNode is the agent's core in mode auto on a node in memory, with the agent's metrics.
type waveNode struct {
	*agenttest.World
	last atomic.Pointer[status.Status]
	name string
}

// wave is eight such nodes that follow a channel of a real catalog, and a real Prometheus that scrapes them.
type wave struct {
	*publishers
	prometheus string
	nodes      []*waveNode
}

func newWave(t *testing.T) *wave {
	t.Helper()
	w := &wave{publishers: newPublishers(t, node.DockerRegistry)}
	for _, channel := range []string{"stage", "prod"} {
		w.does(t, "init", channel, "--key", w.key)
	}
	var targets []story.Target
	for i := range 8 {
		n := &waveNode{World: agenttest.NewWorld(), name: fmt.Sprintf("n%d", i)}
		n.Clock.Add(time.Since(n.Clock.Now()))
		n.Catalog = agenttest.NewCatalog()
		n.Policy.Auto, n.Policy.ApplyTimeout = true, 3*time.Second
		n.Policy.Catalog = catalog.Policy{MachineID: n.name}
		n.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision} }
		n.last.Store(&status.Status{})
		server := httptest.NewServer(metrics.Handler(metrics.Readings{
			Version: "test", Requests: func() map[string]uint64 { return nil }, Received: func() uint64 { return 0 },
			Pace: func() record.Pace { return record.Pace{} }, PerHour: func() int { return 0 },
			Status: func() status.Status { return *n.last.Load() }, Now: time.Now,
		}, metrics.NewCounts()))
		t.Cleanup(server.Close)
		targets = append(targets, story.Target{Node: n.name, Address: strings.TrimPrefix(server.URL, "http://")})
		w.nodes = append(w.nodes, n)
	}
	w.prometheus = story.StartPrometheus(t, "", targets...)
	return w
}

// releases publishes a build, promotes it, and gives it to the nodes' registries. It returns its digest.
func (w *wave) releases(t *testing.T, build string, more ...string) digest.Digest {
	t.Helper()
	long := "4.0.0-rev1-build" + build
	repository := w.registry.Ref("demo/velum")
	d := digest.Digest(story.Rel(w.node, "demo/velum", long))
	for _, n := range w.nodes {
		n.Registry.Restore(repository, d, release.Build{Config: digest.FromString(long), Created: n.Clock.Now()})
		for _, tag := range []string{"4.0.0", "4.0.0-rev1", long} {
			n.Registry.Tag(repository, tag, d)
		}
	}
	w.does(t, "add", "stage", repository+":"+long, "--key", w.key)
	w.does(t, append([]string{"promote", "stage", "prod", repository + ":" + long, "--key", w.key}, more...)...)
	return d
}

// poll has each node poll the real catalog, and apply what mode auto applies now.
func (w *wave) poll(t *testing.T) {
	t.Helper()
	var channel struct {
		Images []format.Page
	}
	require.NoError(t, json.Unmarshal([]byte(w.does(t, "inspect", "prod", "velum", "--output", "json")), &channel))
	repository := w.registry.Ref("demo/velum")
	for _, n := range w.nodes {
		n.Catalog = agenttest.NewCatalog()
		n.Catalog.Publish(repository, channel.Images[0].Releases...)
		s, err := n.Agent().Cycle(t.Context(), source.PollAll)
		require.NoError(t, err, n.name)
		s.Catalog.Catalog = w.registry.Ref("catalog:prod") // a catalog in memory has another name
		n.last.Store(&s)
	}
}

// count returns how many nodes have a release in a state.
func (w *wave) count(d digest.Digest, state status.ReleaseState) (count int) {
	for _, n := range w.nodes {
		if slices.ContainsFunc(n.last.Load().Releases, func(r status.ReleaseStatus) bool {
			return r.Digest == d && r.State == state
		}) {
			count++
		}
	}
	return count
}

func (w *wave) later(d time.Duration) {
	for _, n := range w.nodes {
		n.Clock.Add(d)
	}
}

// watch starts `rollout prod --watch`, and returns when it has looked once: it would end at once if the rollout were over
// by then. said returns its output.
func (w *wave) watch(t *testing.T, more ...string) (cmd *exec.Cmd, said func() string) {
	t.Helper()
	cmd = w.command(t, append([]string{
		"rollout", "prod", "velum", "--watch", "--every", "300ms", "--prometheus", w.prometheus, "--key", w.key,
	}, more...)...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	said = func() string { return story.Output(t, log.Name()) }
	node.Eventually(t, "the watch has looked", story.Ready, func() error {
		if said() == "" {
			return errors.New("it has said nothing")
		}
		return nil
	})
	return cmd, said
}

// The third of eight nodes fails. The watch stops the rollout there: five nodes never begin, until a person resumes it.
func TestWatchedRolloutStopsAtTheFirstFailure(t *testing.T) {
	t.Parallel()
	w := newWave(t)
	for _, n := range w.nodes {
		n.Node.PutTemplate("velum.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: velum\nspec:\n  containers:\n"+
			"  - name: velum\n    image: "+w.registry.Ref("demo/velum")+":4.0.0\n"))
	}
	first := w.releases(t, "1.1")
	w.poll(t)
	require.Equal(t, 8, w.count(first, status.ReleaseRunning), "%s: %+v", w.nodes[0].last.Load().Reason, w.nodes[0].last.Load().Releases)

	bad := w.releases(t, "1.2", "--rollout", "48h")
	order := slices.SortedFunc(slices.Values(w.nodes), func(a, b *waveNode) int {
		at := func(n *waveNode) time.Time {
			return catalog.Policy{MachineID: n.name}.RolloutTime(format.Release{Digest: bad, Rollout: &format.Rollout{Hours: 48}})
		}
		return cmp.Compare(at(a).UnixNano(), at(b).UnixNano())
	})
	third := order[2]
	third.Node.Crash(bad, true)
	w.poll(t)
	w.awaitFleet(t, w.prometheus, "8 staged")
	cmd, said := w.watch(t)
	for step := 0; w.count(bad, status.ReleaseFailed) == 0; step++ {
		require.Less(t, step, 16, "it fails within 48 h")
		w.later(3 * time.Hour)
		w.poll(t)
		w.awaitFleet(t, w.prometheus, fmt.Sprintf(": %d of 8 nodes run it", w.count(bad, status.ReleaseRunning)))
	}
	require.Error(t, cmd.Wait())
	assert.Equal(t, 1, cmd.ProcessState.ExitCode(), said())
	begun := w.count(bad, status.ReleaseRunning)
	// Nodes that begin in the same three hours poll one after the other, and the watch may see the failure first.
	assert.Regexp(t, fmt.Sprintf(`error: paused: %s:4\.0\.0-rev1-build1\.2: [0-%d] of 8 nodes run it, 1 failed \(%s\)`,
		regexp.QuoteMeta(w.registry.Ref("demo/velum")), begun, third.name), said())
	w.later(100 * time.Hour)
	w.poll(t)
	assert.Equal(t, begun, w.count(bad, status.ReleaseRunning), "no node begins")
	assert.GreaterOrEqual(t, begun, 2)
	t.Logf("%d of 8 nodes had begun\n%s", begun+1, said())

	// A person knows that it is this node's own fault.
	w.does(t, "rollout", "prod", "velum", "--resume", "--over", "1h", "--key", w.key)
	cmd, said = w.watch(t, "--max-failed", "1", "--nodes", "80")
	w.later(time.Hour)
	w.poll(t)
	assert.Equal(t, 7, w.count(bad, status.ReleaseRunning))
	w.does(t, "rollout", "prod", "velum", "--now", "--key", w.key)
	require.NoError(t, cmd.Wait(), said())
	assert.Contains(t, said(), fmt.Sprintf(": 7 of 8 nodes run it, 1 failed (%s)\n", third.name))
}

// SPDX-License-Identifier: Apache-2.0

//go:build soak

package catalog

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/fleet"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
)

const (
	simulated    = 10_000
	simulatedFor = 72 * time.Hour // the rollout
	simulatedAsk = time.Hour      // the interval of the nodes' polls
	oneFails     = 1000           // on one node in this many the release does not come up
)

// simulation is 10,000 nodes with a rollout, at one moment. The agent's own decisions make the nodes' times.
type simulation struct {
	at, slots      []time.Duration // since the publication: when a node begins; when it polls, modulo the interval
	now, paused    time.Duration   // paused: 0: not
	first, release digest.Digest
	catalog, image string
}

func newSimulation(p *publishers, first, release digest.Digest) *simulation {
	s := &simulation{first: first, release: release, catalog: p.registry.Ref("catalog:prod"), image: p.registry.Ref("demo/velum")}
	listed := format.Release{Digest: release, Rollout: &format.Rollout{From: fleet.Epoch(), Hours: int(simulatedFor.Hours())}}
	for i := range simulated {
		id := fmt.Sprintf("n%05d", i)
		s.at = append(s.at, catalog.Policy{MachineID: id}.RolloutTime(listed).Sub(fleet.Epoch()))
		s.slots = append(s.slots, policy.NextSlot(fleet.Epoch(), simulatedAsk, id).Sub(fleet.Epoch())%simulatedAsk)
	}
	return s
}

// hasBegun reports whether a node has begun. After a pause it begins until its next poll.
func (s *simulation) hasBegun(i int) bool {
	told := s.slots[i]
	for told < s.paused {
		told += simulatedAsk
	}
	return s.at[i] <= s.now && (s.paused == 0 || s.at[i] < told)
}

func (s *simulation) state(i int) status.ReleaseState {
	switch {
	case !s.hasBegun(i):
		return status.ReleaseStaged
	case i%oneFails == oneFails-1:
		return status.ReleaseFailed
	default:
		return status.ReleaseRunning
	}
}

func (s *simulation) count(state status.ReleaseState) (n int) {
	for i := range simulated {
		if s.state(i) == state {
			n++
		}
	}
	return n
}

// firstFailure returns when the first node fails.
func (s *simulation) firstFailure() time.Duration {
	first := simulatedFor
	for i := oneFails - 1; i < simulated; i += oneFails {
		first = min(first, s.at[i])
	}
	return first
}

// write writes the nodes' metrics.
func (s *simulation) write(w io.Writer) {
	series := func(i int, tag string, d digest.Digest, state status.ReleaseState) {
		fmt.Fprintf(w, "image_update_agent_release_info{instance=\"n%05d\",catalog=%q,repository=%q,tag=%q,digest=%q,state=%q} 1\n",
			i, s.catalog, s.image, tag, d, state)
	}
	for i := range simulated {
		is := s.state(i)
		series(i, "4.0.0-rev1-build1.2", s.release, is)
		if is != status.ReleaseRunning {
			series(i, "4.0.0-rev1-build1.1", s.first, status.ReleaseRunning)
		}
		fmt.Fprintf(w, "image_update_agent_loop_turns_total{instance=\"n%05d\"} %d\n", i, s.now/time.Minute)
	}
}

// In a fleet of 10,000 nodes a release fails on one node in a thousand. With a real Prometheus and a real catalog, the
// watch pauses the rollout at the first one, and the nodes stop within their interval.
func TestWatchedFleetOfTenThousand(t *testing.T) {
	t.Parallel()
	p := newPublishers(t, node.DockerRegistry)
	for _, channel := range []string{"stage", "prod"} {
		p.does(t, "init", channel, "--key", p.key)
	}
	image := p.registry.Ref("demo/velum")
	var digests []digest.Digest
	for _, build := range []string{"1.1", "1.2"} {
		digests = append(digests, digest.Digest(story.Rel(p.node, "demo/velum", "4.0.0-rev1-build"+build)))
		p.does(t, "add", "stage", image+":4.0.0-rev1-build"+build, "--key", p.key)
	}
	p.does(t, "promote", "stage", "prod", image+":4.0.0-rev1-build1.2", "--rollout", "72h", "--key", p.key)

	sim := newSimulation(p, digests[0], digests[1])
	var shown atomic.Pointer[bytes.Buffer]
	show := func(at time.Duration) {
		sim.now = at
		var text bytes.Buffer
		sim.write(&text)
		shown.Store(&text)
	}
	show(0)
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(shown.Load().Bytes()) }))
	t.Cleanup(exporter.Close)
	server := story.StartPrometheus(t, "", story.Target{Address: strings.TrimPrefix(exporter.URL, "http://"), HonorLabels: true})
	p.awaitFleet(t, server, ": 0 of 10,000 nodes run it, 10,000 staged\n")
	began := time.Now()
	p.run(t, "fleet", "prod", "--prometheus", server)
	t.Logf("fleet took %s", time.Since(began).Round(time.Millisecond))

	w := &wave{publishers: p, prometheus: server}
	cmd, said := w.watch(t)
	show(sim.firstFailure() - time.Minute)
	well := sim.count(status.ReleaseRunning)
	text := fmt.Sprint(well)
	if well >= 1000 {
		text = fmt.Sprintf("%d,%03d", well/1000, well%1000)
	}
	p.awaitFleet(t, server, ": "+text+" of 10,000 nodes run it, ")
	require.Zero(t, sim.count(status.ReleaseFailed))
	require.NoError(t, cmd.Process.Signal(syscall.Signal(0)), "nothing has failed yet")
	show(sim.firstFailure())
	require.Error(t, cmd.Wait())
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Contains(t, said(), "error: paused: "+image+":4.0.0-rev1-build1.2: ")
	assert.Contains(t, p.does(t, "rollout", "prod"), "paused")
	stopped := sim.now
	begun := simulated - sim.count(status.ReleaseStaged)
	sim.paused, sim.now = stopped, 2*simulatedFor
	end := simulated - sim.count(status.ReleaseStaged)
	t.Logf("paused after %.1f h: %d nodes had begun, %d began before they polled\n%s", stopped.Hours(), begun, end-begun, said())
	assert.Less(t, end-begun, 160, "at most those of one interval")
}

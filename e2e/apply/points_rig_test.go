// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/face/api"
)

// pointsRig is a node with a daemon that is killed repeatedly. Each round is the next release.
type pointsRig struct {
	*node.Node
	t      *testing.T // of the current subtest
	s      scenario
	port   int
	cri    *node.CRI
	daemon *node.Process   // an ordinary one, between two rounds
	build  int             // of the last release
	runs   string          // the digest that the pod runs
	name   string          // and its long tag
	pinned bool            // its pod manifest has that digest
	hurry  string          // configuration of a daemon that should detect a failing release
	killed map[string]bool // points with a kill
}

// A pod that should fail does so quickly, and one that comes up gets the time that a busy machine needs. If the
// ordinary daemon must handle both, the value is in between. A busy kubelet takes longer than a second to end a
// container that it has started too late.
const (
	hasty   = "interval: 0\nsettle: 3s\napplyTimeout: 1s\n"
	between = "interval: 0\nsettle: 3s\napplyTimeout: 40s\n"
	patient = "interval: 0\nsettle: 3s\napplyTimeout: 1m\n"
)

func newPointsRig(t *testing.T, s scenario) *pointsRig {
	t.Helper()
	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	r := &pointsRig{Node: n, t: t, s: s, port: n.FreePort(), build: 1, hurry: hasty, cri: n.CRI(), killed: map[string]bool{}}
	n.WriteFile(story.ConfigFile, patient)
	n.WriteFile(story.TemplateDir+"velum.yaml", story.VelumTemplate(r.port, n.Registry.Ref("demo/velum:__TAG__"))+fmt.Sprintf(
		"    readinessProbe:\n      httpGet: {host: 127.0.0.1, port: %d, path: /ready}\n      periodSeconds: 1\n", r.port))
	r.name = "4.0.0-rev1-build1.1"
	r.runs = story.Rel(n, "demo/velum", r.name)
	story.Cycle(t, n, 0)
	n.WaitAnswer(r.port, r.name)
	r.daemon = story.StartDaemonWith(t, n)
	return r
}

// offer publishes the next release, good or not, and stages it.
func (r *pointsRig) offer(fault node.Fault) pointsRelease {
	r.t.Helper()
	r.build++
	p := pointsRelease{long: fmt.Sprintf(r.s.long, r.build), fault: fault, manifest: r.ReadFile(story.VelumYAML)}
	image := node.Image{Layers: []node.Layer{{Seed: uint64(r.build), Size: 10 << 10}}}
	if fault == "" {
		p.digest = r.Registry.Publish("demo/velum", p.long, image)
	} else {
		p.digest = r.Registry.PublishFaulty("demo/velum", p.long, image, fault)
	}
	s := story.Check(r.t, r.Node)
	i := story.ImageOf(r.t, s, "velum.yaml")
	require.True(r.t, i.Staged, "%+v", i)
	require.NotNil(r.t, i.Offered)
	require.Equal(r.t, p.digest, i.Offered.Digest.String())
	return p
}

// pointsRelease is the release of a round.
type pointsRelease struct {
	long, digest string
	fault        node.Fault
	manifest     string // the previous pod manifest
}

// record plays a round without a kill. It returns the points that it passed.
func (r *pointsRig) record() []string {
	r.t.Helper()
	p := r.offer(r.s.fault)
	require.False(r.t, r.spring(p, ""), "nobody kills")
	var labels []string
	for label := range strings.Lines(r.ReadFile(story.Passed)) {
		if label = strings.TrimSpace(label); !in(label, "start") || r.s.pickedUp {
			labels = append(labels, label)
		}
	}
	r.recover(p, "")
	return slices.Compact(labels)
}

// round kills the daemon at a point of the next release's apply.
func (r *pointsRig) round(t *testing.T, label string) {
	t.Helper()
	r.t = t
	fault := r.s.fault
	if slices.Contains(r.s.crash, label) {
		fault = node.Crash
	}
	r.hurry = hasty
	for range 6 { // a busy machine may miss a point
		for r.s.pickedUp && r.pinned {
			r.heal()
		}
		p := r.offer(fault)
		if r.spring(p, label) {
			r.killed[label] = true
			r.asideIsPutBack(p, label)
			r.recover(p, label)
			return
		}
		r.recover(p, "")
		if fault != "" && in(label, "apply") {
			return // after a rollback, it comes up in another way
		}
		require.False(t, isCall(label), "no such point")
		r.hurry = between // on a busy machine the health check of the rollback may have ended before it began
	}
	require.True(t, isRepeated(label), "no such point")
}

// isCall reports a point before or after a call with side effects.
func isCall(label string) bool {
	return strings.HasSuffix(label, " before") || strings.HasSuffix(label, " after")
}

// isRepeated reports a point after a repeated query. The number of repetitions depends on timing.
func isRepeated(label string) bool { return strings.HasSuffix(label, " 2") }

// spring makes a daemon apply a release, and reports whether it was killed at the point.
func (r *pointsRig) spring(p pointsRelease, label string) bool {
	r.t.Helper()
	require.Equal(r.t, 0, r.daemon.Stop().Code)
	require.NoError(r.t, os.RemoveAll(r.Path(story.Passed)))
	require.NoError(r.t, os.RemoveAll(r.Path(story.AgentSocket)))
	if p.fault != "" {
		r.WriteFile(story.ConfigFile, r.hurry)
	}
	if r.s.pickedUp {
		r.adopt(p)
	}
	daemon := r.StartKillable([]string{"IUA_KILL_AT=" + label, "IUA_KILL_LOG=" + r.Path(story.Passed)}, "run")
	r.rests(daemon)
	if !r.s.pickedUp {
		apply := r.StartAgent("apply", "velum")
		exit := apply.Wait(story.Ready)
		if label == "" && p.fault == "" {
			assert.Equal(r.t, 0, exit.Code, "%s", story.Output(r.t, apply.Stderr))
		}
	}
	isKilled := func() bool {
		return label != "" && strings.Contains("\n"+r.ReadFile(story.Passed), "\n"+label+"\n")
	}
	if isKilled() {
		assert.NotZero(r.t, daemon.Wait(story.Ready).Signal)
		return true
	}
	exit := daemon.Stop()
	if isKilled() { // it reached the point meanwhile
		assert.NotZero(r.t, exit.Signal)
		return true
	}
	assert.Equal(r.t, 0, exit.Code)
	return false
}

// adopt makes kubelet pick up the release of the floating tag. A container that kubelet finds ended would get a
// back-off.
func (r *pointsRig) adopt(p pointsRelease) {
	r.t.Helper()
	old, err := r.cri.Running("dashboard")
	require.NoError(r.t, err)
	r.cri.Stop("dashboard")
	_, err = r.cri.Runtime.RemoveContainer(r.t.Context(), &cri.RemoveContainerRequest{ContainerId: old.GetId()})
	require.NoError(r.t, err)
	node.Eventually(r.t, "kubelet takes "+p.long, story.Ready, func() error {
		list, err := r.cri.Runtime.ListContainers(r.t.Context(), &cri.ListContainersRequest{})
		for _, c := range list.GetContainers() {
			isRunning := c.GetState() == cri.ContainerState_CONTAINER_RUNNING
			if c.GetMetadata().GetName() == "dashboard" && c.GetCreatedAt() > old.GetCreatedAt() && (isRunning || p.fault != "") {
				return nil
			}
		}
		return errors.Join(err, errors.New("no other container"))
	})
}

// rests waits until a daemon has finished its work after its start, or has ended.
func (r *pointsRig) rests(daemon *node.Process) status.Status {
	r.t.Helper()
	var s status.Status
	node.Eventually(r.t, "daemon rests", story.Ready, func() (err error) {
		select {
		case <-daemon.Done():
			return nil
		default:
		}
		if s, err = api.NewClient(r.Path(story.AgentSocket)).Status(r.t.Context()); err != nil {
			return err
		}
		if s.HasReason(status.KindStarting) || s.State == status.StateApplying {
			return fmt.Errorf("%s: %s", s.State, s.Reason)
		}
		return nil
	})
	return s
}

// recover starts an ordinary daemon after a kill at the point, waits until it rests, and asserts that the node is
// correct.
func (r *pointsRig) recover(p pointsRelease, label string) {
	r.t.Helper()
	if (label == "" || in(label, "report")) && p.fault != "" && !r.s.pickedUp {
		r.WaitAnswer(r.port, r.name) // rolled back; a busy machine takes longer than the short timeout
	}
	r.WriteFile(story.ConfigFile, patient)
	if p.fault != "" && (in(label, "apply") || in(label, "start") || label == "roll back: save before") {
		r.WriteFile(story.ConfigFile, between) // the failure is not known yet
	}
	require.NoError(r.t, os.RemoveAll(r.Path(story.AgentSocket)))
	r.daemon = r.StartAgent("run")
	s := r.rests(r.daemon)
	switch {
	case label == "apply: save before": // the approval was not saved
		r.offeredAgain(p, s)
	case p.fault == "":
		r.verified(p, s)
	default:
		r.rolledBack(p, s)
	}
	r.whole(s)
}

// heal brings a rolled back pod to a release from which it can be updated: a pinned one picks up nothing.
func (r *pointsRig) heal() {
	r.t.Helper()
	p := r.offer("")
	story.Apply(r.t, r.Node, 0, "velum")
	_, slow := r.readRecord().Overrides["velum.yaml"]
	r.runs, r.name, r.pinned = p.digest, p.long, slow
}

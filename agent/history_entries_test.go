// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// alice is a person who is known by name.
func alice() status.Actor {
	return status.Actor{Kind: status.ByPerson, Via: status.ViaBus, UID: new(uint32(1000)), User: "alice"}
}

// asAlice approves everything as alice.
func (w *world) asAlice() []status.Outcome {
	w.t.Helper()
	out, _, err := w.agent.Apply(status.WithActor(w.t.Context(), alice()), agent.ApplyRequest{Which: plan.All()})
	require.NoError(w.t, err)
	return out
}

// past is the history after another start, as the test names its entries.
func (w *world) past() []string {
	w.t.Helper()
	w.restart()
	out := []string{}
	for _, e := range w.observe().History {
		assert.False(w.t, e.At.IsZero())
		out = append(out, fmt.Sprintf("%s %s/%s %s: %s -> %s by %s %s",
			e.Result, e.PodManifest, e.Container, e.Change, e.From, e.To, e.By, e.Cause))
	}
	return out
}

func TestHistoryNamesWhoApprovedAnApply(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	log := &bytes.Buffer{}
	w.agent.Log = slog.New(slog.NewTextHandler(log, nil))
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	assert.Empty(t, w.check().History, "a node that was never changed")

	w.asAlice()

	assert.Equal(t, []string{
		"applied velum.yaml/velum rebuild: 4.0.0-rev1-build1.1 -> 4.0.0-rev1-build1.2 by alice (uid 1000, bus) ",
	}, w.past())
	entry := w.observe().History[0]
	assert.Equal(t, second.Digest, entry.Digest)
	assert.Equal(t, velum, entry.Image)
	assert.Equal(t, w.Clock.Now().UTC(), entry.At)
	assert.Contains(t, log.String(), `msg=approved file=velum.yaml change=rebuild by="alice (uid 1000, bus)"`)
}

func TestHistoryNamesModeAuto(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := auto(t)
		log := &bytes.Buffer{}
		w.agent.Log = slog.New(slog.NewTextHandler(log, nil))
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.at(2)
		w.check()
		assert.Equal(t, []string{
			"applied velum.yaml/velum rebuild: 4.0.0-rev1-build1.1 -> 4.0.0-rev1-build1.2 by mode auto ",
		}, w.past())
		assert.Contains(t, log.String(), `msg=approved`)
		assert.Contains(t, log.String(), `by="mode auto"`)
	})
}

// The newest comes first: the rollback after the failure that caused it.
func TestHistoryHasAFailureAndItsRollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.bad(1, "9.9")
		w.asAlice()
		assert.Equal(t, []string{
			"rolled back velum.yaml/velum rollback: 4.0.0-rev1-build9.9 -> 4.0.0-rev1-build1.1 by agent not-up",
			"failed velum.yaml/velum rebuild: 4.0.0-rev1-build1.1 -> 4.0.0-rev1-build9.9 by alice (uid 1000, bus) not-up",
		}, w.past())
		assert.Contains(t, w.observe().History[1].Reason, "velum does not run (exit code 1)")
		w.observe()
		assert.Len(t, w.observe().History, 2, "an observation adds nothing")
	})
}

func TestHistoryHasARollbackThatFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.apply()
		w.Node.Crash(first.Digest, true)
		_, _, err := w.agent.Rollback(status.WithActor(t.Context(), alice()), plan.Named("velum"))
		require.NoError(t, err)
		assert.Equal(t, "failed velum.yaml/velum rollback: 4.0.0-rev1-build1.2 -> 4.0.0-rev1-build1.1 "+
			"by alice (uid 1000, bus) not-up", w.past()[0])
	})
}

func TestHistoryNamesWhoRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.apply()
		_, _, err := w.agent.Rollback(status.WithActor(t.Context(), alice()), plan.Named("velum"))
		require.NoError(t, err)
		assert.Equal(t, []string{
			"rolled back velum.yaml/velum rollback: 4.0.0-rev1-build1.2 -> 4.0.0-rev1-build1.1 by alice (uid 1000, bus) ",
			"applied velum.yaml/velum rebuild: 4.0.0-rev1-build1.1 -> 4.0.0-rev1-build1.2 by person ",
		}, w.past())
	})
}

func TestHistoryHasWhatKubeletTookByItself(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Node.Restart("velum.yaml", "velum")
	w.poll()
	assert.Equal(t, []string{
		"adopted velum.yaml/velum : 4.0.0-rev1-build1.1 -> 4.0.0-rev1-build1.2 by kubelet ",
	}, w.past())
}

// A pod has an entry for each container whose release changed.
func TestHistoryLeavesOutContainersThatDidNotChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "a="+velum+":4.0.0", "b="+velum+":4.0.0", "db="+mariadb+":10.0"))
	w.check()
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.check()
	w.apply()
	past := w.past()
	require.Len(t, past, 2)
	assert.Contains(t, past[0], "velum.yaml/a")
	assert.Contains(t, past[1], "velum.yaml/b")
}

// The daemon died in the apply: the next one names who approved it.
func TestHistoryNamesTheApproverAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := offered(t)
		ctx, kill := context.WithCancel(status.WithActor(t.Context(), alice()))
		defer kill()
		w.Node.OnStop = func(string) error { kill(); return ctx.Err() }
		_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
		require.NoError(t, err)
		w.Node.OnStop = nil
		assert.Equal(t, []string{
			"applied velum.yaml/velum rebuild: 4.0.0-rev1-build1.1 -> 4.0.0-rev1-build1.2 by alice (uid 1000, bus) ",
		}, w.past())
	})
}

// The journal has a line for each poll, also where it found nothing, and none for an observation.
func TestEachPollIsLoggedOnce(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	log := &bytes.Buffer{}
	w.agent.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	w.observe()
	assert.Empty(t, log.String())
	w.poll()
	assert.Regexp(t, `^time=\S+ level=INFO msg=polled cycle=\d+ sources=1 unanswered=0 updates=0 state=current next=never\n$`, log.String())
	log.Reset()
	w.Registry.Down(agenttest.ErrRefused)
	w.check()
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("msg=polled")))
	assert.Contains(t, log.String(), "unanswered=1 updates=0 state=stale")
}

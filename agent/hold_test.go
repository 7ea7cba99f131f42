// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// offered is a node with a rebuild of velum staged.
func offered(t *testing.T) (*world, release.Release) {
	t.Helper()
	w, first := running(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	require.Equal(t, status.StateStaged, w.check().State)
	return w, first
}

func (w *world) hold(h record.PersonHold, names ...string) []string {
	w.t.Helper()
	keys, _, err := w.agent.Hold(w.t.Context(), names, len(names) == 0, h)
	require.NoError(w.t, err)
	return keys
}

func TestPersonsHoldPreventsAnApply(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		names []string
		key   string
	}{
		"a repository":         {[]string{velum}, velum},
		"the end of one":       {[]string{"velum"}, velum},
		"a pod manifest":       {[]string{"velum.yaml"}, velum},
		"all":                  {nil, "*"},
		"twice the same":       {[]string{"velum", velum}, velum},
		"by name and manifest": {[]string{"velum", "velum.yaml"}, velum},
	} {
		parallel(t, name, func(t *testing.T) {
			w, first := offered(t)
			keys := w.hold(record.PersonHold{Reason: "demo on Friday"}, c.names...)
			assert.Equal(t, []string{c.key}, keys)
			w.restart()
			s := w.observe()
			assert.Equal(t, status.StateHeld, s.State)
			assert.Contains(t, s.Reason, "demo on Friday")
			assert.NotNil(t, image(s, "velum.yaml", "velum").Offered, "it stays offered")
			hold := podOf(s, "velum.yaml").Holds[0]
			assert.Equal(t, c.key, hold.Image)
			assert.Equal(t, status.ByPerson, hold.By)
			out, _ := w.apply()
			require.Equal(t, status.ResultHeld, out[0].Result)
			assert.Contains(t, out[0].Reason, "demo on Friday")
			assert.Equal(t, status.HoldRequested, out[0].Hold)
			w.runs("velum.yaml", "velum", first.Digest)
			w.idle()

			keys, s, err := w.agent.Resume(t.Context(), c.names, len(c.names) == 0)
			require.NoError(t, err)
			assert.Equal(t, []string{c.key}, keys)
			assert.Equal(t, status.StateStaged, s.State, s.Reason)
			keys, _, err = w.agent.Resume(t.Context(), c.names, len(c.names) == 0)
			require.NoError(t, err)
			assert.Empty(t, keys, "nothing was held any more")
			out, _ = w.apply()
			assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		})
	}
}

// RFC 3339 has four digits for the year, and this one has five in UTC.
func TestHoldUntilTheLargestTimeIsKept(t *testing.T) {
	t.Parallel()
	w, _ := offered(t)
	end, err := time.Parse(time.RFC3339, "9999-12-31T23:59:59-12:00")
	require.NoError(t, err)
	w.hold(record.PersonHold{Until: end}, "velum")
	assert.Contains(t, w.observe().Reason, "hold: "+velum+", until 9998-12-31T23:59:59Z")
	w.restart()
	assert.Equal(t, status.StateHeld, w.observe().State)
}

func TestResumeOfAllEndsEveryHold(t *testing.T) {
	t.Parallel()
	w, _ := offered(t)
	w.hold(record.PersonHold{}, "velum")
	w.hold(record.PersonHold{})
	keys, s, err := w.agent.Resume(t.Context(), nil, true)
	require.NoError(t, err)
	assert.Equal(t, []string{"*", velum}, keys)
	assert.Equal(t, status.StateStaged, s.State)
}

func TestInvalidHoldIsRefused(t *testing.T) {
	t.Parallel()
	w, _ := offered(t)
	_, _, err := w.agent.Hold(t.Context(), []string{"unknown"}, false, record.PersonHold{})
	require.ErrorIs(t, err, plan.ErrUnknownImage)
	_, _, err = w.agent.Hold(t.Context(), nil, true, record.PersonHold{Until: w.Clock.Now()})
	require.ErrorIs(t, err, agent.ErrHoldEnds)
	_, _, err = w.agent.Hold(t.Context(), nil, true, record.PersonHold{Reason: strings.Repeat("x", 201)})
	require.ErrorIs(t, err, agent.ErrReason)
	assert.Equal(t, status.StateStaged, w.observe().State)
	w.hold(record.PersonHold{Reason: strings.Repeat("x", 200)})
}

// Who wants to hold a node often has another trouble with it.
func TestHoldsChangeWhileContainerdIsDown(t *testing.T) {
	t.Parallel()
	w, _ := offered(t)
	w.Node.Blind(errors.New("containerd is down"))
	keys, s, err := w.agent.Hold(t.Context(), nil, true, record.PersonHold{Reason: "wait"})
	require.NoError(t, err)
	assert.Equal(t, []string{"*"}, keys)
	assert.Equal(t, status.StateFailed, s.State)
	w.restart()
	keys, s, err = w.agent.Resume(t.Context(), nil, true)
	require.NoError(t, err, "the hold is gone")
	assert.Equal(t, []string{"*"}, keys)
	assert.Contains(t, s.Reason, "containerd is down")
	w.Node.Blind(nil)
	assert.Equal(t, status.StateStaged, w.observe().State)
}

// A hold of an image that no pod uses any more can be removed by its name.
func TestResumeOfAnUnusedImage(t *testing.T) {
	t.Parallel()
	w, _ := offered(t)
	w.hold(record.PersonHold{}, "velum")
	w.Node.PutTemplate("velum.yaml", nil)
	w.Node.PutPodManifest("velum.yaml", nil)
	keys, _, err := w.agent.Resume(t.Context(), []string{"velum"}, false)
	require.NoError(t, err)
	assert.Equal(t, []string{velum}, keys)
	_, _, err = w.agent.Resume(t.Context(), []string{"velum"}, false)
	require.ErrorIs(t, err, plan.ErrUnknownImage)
}

func TestNodeHoldsAnApply(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	w.Against = []status.Hold{{Name: "reboot", Reason: "it reboots at 03:00"}}
	w.AskedAgainst = 0
	assert.Equal(t, status.StateCurrent, w.observe().State, "nothing waits for it")
	assert.Zero(t, w.AskedAgainst, "so no precondition is read")
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")

	s := w.check()

	assert.Equal(t, status.StateHeld, s.State)
	assert.Equal(t, "velum.yaml: reboot: it reboots at 03:00", s.Reason)
	assert.True(t, w.Node.Pinned(velum, next.Digest), "it is staged all the same")
	out, _ := w.apply()
	assert.Equal(t, status.ResultHeld, out[0].Result)
	assert.Equal(t, "reboot: it reboots at 03:00", out[0].Reason)
	w.runs("velum.yaml", "velum", first.Digest)
	w.Against = nil
	out, _ = w.apply()
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)

	// A step without a restart is not held.
	w.Against = []status.Hold{{Name: "reboot", Reason: "it reboots at 03:00"}}
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":__TAG__"))
	w.check()
	assert.NotEmpty(t, w.Node.PodManifest("db.yaml"))
}

// A hold of the node that begins after the plan holds the restarts that have not begun, and their applies are over; the
// rollback of a pod that has failed is not held.
func TestHoldThatBeginsDuringStepsHoldsTheOtherRestarts(t *testing.T) {
	t.Parallel()
	scheduled := []status.Hold{{Name: status.HoldReboot, Reason: "scheduled"}}
	twoOffered := func(t *testing.T) (w *world, first, next release.Release) {
		w, first = running(t)
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":__TAG__"))
		w.check()
		w.Registry.Release(mariadb, "10.0", 1, "1.2")
		return w, first, w.publish(1, "1.2")
	}
	for name, c := range map[string]struct {
		begins, ends func(w *world)
		hold         string
	}{
		"a scheduled reboot": {
			func(w *world) { w.Against = scheduled },
			func(w *world) { w.Against = nil }, status.HoldReboot,
		},
		"a busy grain": {
			func(w *world) { w.Grain.SetBusy("update_in_progress") }, func(w *world) { w.Grain.SetBusy("") }, status.HoldBusy,
		},
		"unreadable grains": {
			func(w *world) { w.Grain.Fail(assert.AnError) }, func(w *world) { w.Grain.Fail(nil) }, status.HoldBusy,
		},
	} {
		run(t, name+" after the first restart", func(t *testing.T) {
			w, first, _ := twoOffered(t)
			w.onFirstStop(func() { c.begins(w) })
			out, _ := w.apply()
			require.Equal(t, "db.yaml", out[0].PodManifest)
			assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
			assert.Equal(t, status.ResultHeld, out[1].Result, out[1].Reason)
			assert.Equal(t, c.hold, out[1].Hold)
			c.ends(w)
			w.observe()
			w.runs("velum.yaml", "velum", first.Digest)
		})
		run(t, name+" during the pull", func(t *testing.T) {
			w, first := running(t)
			w.Policy.Auto = true
			w.restart()
			w.Node.OnStage = func(context.Context, release.Release) error { c.begins(w); return nil }
			next := w.publish(1, "1.2")
			w.runs("velum.yaml", "velum", first.Digest)
			w.Node.OnStage = nil
			c.ends(w)
			w.observe()
			w.runs("velum.yaml", "velum", next.Digest)
		})
	}
	run(t, "an earlier approval stays", func(t *testing.T) {
		w, first, next := twoOffered(t)
		w.agent.Recorder = &afterSave{w.Disk, func() { w.Node.Blind(assert.AnError) }}
		_, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
		require.ErrorIs(t, err, assert.AnError)
		w.agent.Recorder = w.Disk
		w.Node.Blind(nil)
		w.onFirstStop(func() { w.Against = scheduled })
		w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
		w.Against = nil
		w.observe()
		w.runs("velum.yaml", "velum", next.Digest)
	})
	run(t, "a begun set goes on", func(t *testing.T) {
		w, one, two := setWorld(t)
		w.check()
		w.Node.OnAside = func(string) error {
			w.Against = scheduled
			return nil
		}
		out, _ := w.apply()
		assert.Equal(t, []status.Result{status.ResultApplied, status.ResultApplied}, []status.Result{out[0].Result, out[1].Result})
		w.runs("velum.yaml", "velum", one.Digest)
		w.runs("db.yaml", "db", two.Digest)
	})
	run(t, "a failed pod is rolled back", func(t *testing.T) {
		w, first := running(t)
		w.Node.Crash(w.publish(1, "1.2").Digest, true)
		w.onFirstStop(func() { w.Against = scheduled })
		out, _ := w.apply()
		assert.Equal(t, status.ResultFailed, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// The log tells who did what, so it has only what was saved.
func TestTheLogHasNoRequestThatWasNotSaved(t *testing.T) {
	t.Parallel()
	w, _ := offered(t)
	w.hold(record.PersonHold{}, "velum")
	log := &bytes.Buffer{}
	w.agent.Log = slog.New(slog.NewTextHandler(log, nil))
	full := errors.New("no space left on device")
	w.Disk.Fail(full)
	_, _, err := w.agent.Hold(t.Context(), nil, true, record.PersonHold{})
	require.ErrorIs(t, err, full)
	_, _, err = w.agent.Resume(t.Context(), nil, true)
	require.ErrorIs(t, err, full)
	w.Disk.Fail(nil)
	w.observe()
	_, _, err = w.agent.Resume(t.Context(), []string{"velum"}, false)
	require.NoError(t, err, "it is still there")
	assert.Equal(t, 1, strings.Count(log.String(), `msg="hold removed"`), log)
	w.resume()
	assert.Equal(t, 1, strings.Count(log.String(), `msg="hold removed"`), "there was none")
	w.Disk.Fail(full)
	_, _, err = w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
	require.ErrorIs(t, err, full)
	assert.NotContains(t, log.String(), "msg=held")
	assert.NotContains(t, log.String(), "msg=approved")
	w.Disk.Fail(nil)
	w.hold(record.PersonHold{}, "velum")
	assert.Contains(t, log.String(), "msg=held images=["+velum+"] until=resume ")
}

// A hold on an up-to-date node applies to the next release, so the status shows it before that exists.
func TestStandingHoldIsShownWhileNothingIsOffered(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	assert.Empty(t, w.observe().StandingHolds)
	log := &bytes.Buffer{}
	w.agent.Log = slog.New(slog.NewTextHandler(log, nil))
	until := w.Clock.Now().Add(time.Hour).UTC()
	since := w.Clock.Now().UTC()
	_, s, err := w.agent.Hold(status.WithActor(t.Context(), alice()), nil, true, record.PersonHold{Reason: "demo", Until: until})
	require.NoError(t, err)
	assert.Equal(t, status.StateCurrent, s.State)
	want := status.StandingHold{Repository: "*", Name: "hold", Reason: "demo", Since: &since, Until: &until, By: alice()}
	want.Remedy, want.Summary = "image-update-agent resume --all; or wait until it ends", "demo"
	assert.Equal(t, []status.StandingHold{want}, s.StandingHolds)
	assert.Contains(t, log.String(), `msg=held images=[*] until=2026-05-01T13:00:00.000Z by="alice (uid 1000, bus)"`)
	w.restart()
	assert.Equal(t, []status.StandingHold{want}, w.observe().StandingHolds, "also after a restart")
	w.Clock.Add(time.Hour)
	assert.Empty(t, w.observe().StandingHolds, "it has ended")
	w.hold(record.PersonHold{}, "velum")
	assert.Equal(t, velum, w.observe().StandingHolds[0].Repository)
	assert.Nil(t, w.observe().StandingHolds[0].Until)
	s = w.resume()
	assert.Empty(t, s.StandingHolds)
}

// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

func TestTextsOfAStatus(t *testing.T) {
	t.Parallel()
	next := time.Date(2026, 5, 1, 14, 0, 0, 0, time.FixedZone("", 7200))
	s := status.Status{State: status.StateCurrent, Reason: "nothing to do"}
	assert.Equal(t, "current: nothing to do", status.Sentence(s))
	s.NextCheck = &next
	assert.Equal(t, "current: nothing to do; next check 2026-05-01T12:00:00Z", status.Sentence(s))
	uid := uint32(1000)
	for want, a := range map[string]status.Actor{
		"mode auto": {Kind: status.ByAuto}, "person": {Kind: status.ByPerson},
		"uid 1000 (bus)":           {Kind: status.ByPerson, Via: status.ViaBus, UID: &uid},
		"alice (uid 1000, socket)": {Kind: status.ByPerson, Via: status.ViaSocket, UID: &uid, User: "alice"},
	} {
		assert.Equal(t, want, a.String())
		assert.Equal(t, a, status.ActorOf(status.WithActor(t.Context(), a)))
	}
	assert.Equal(t, status.Actor{Kind: status.ByPerson}, status.ActorOf(t.Context()))
	for want, d := range map[string]status.Down{
		"has not started yet: ErrImagePull: no such host": {Starting: true, Reason: "ErrImagePull", Message: "no such host"},
		"was not started": {Absent: true},
		"is not running (exit code 137): OOMKilled": {ExitCode: 137, Reason: "OOMKilled"},
	} {
		assert.Equal(t, want, d.String())
	}
	down := status.Down{ExitCode: 1, Since: next}
	assert.Equal(t, status.Reason{
		Kind: status.KindDown, PodManifest: "a.yaml", Container: "a", Image: "r.io/a", Since: next.UTC(), Text: "a.yaml: a is not running (exit code 1)",
	}, down.AsReason("a.yaml", "a", "r.io/a"))
}

// Releases that ran before a boot may not run now.
func TestBeforeBoot(t *testing.T) {
	t.Parallel()
	was := status.Status{
		State: status.StateFailed, Written: time.Unix(9, 0), Progress: &status.Progress{}, Pulls: make([]status.Progress, 1),
		Images: []status.ImageStatus{{Image: "r.io/a", Running: &status.Named{}, Down: &status.Down{}}}, Failures: make([]status.Failure, 1),
	}
	s := was.BeforeBoot()
	assert.Equal(t, status.StateUnchecked, s.State)
	assert.Equal(t, was.Written, s.Since)
	assert.True(t, s.HasReason(status.KindStarting))
	assert.Empty(t, s.Failures)
	assert.Nil(t, s.Progress)
	assert.Nil(t, s.Pulls)
	assert.Equal(t, []status.ImageStatus{{Image: "r.io/a"}}, s.Images)
	assert.NotNil(t, was.Images[0].Running, "the status from before is not changed")
}

func TestOutcomeOfAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want status.Outcome
	}{
		{errors.New("x"), status.Outcome{Result: "failed", Reason: "x", ErrorKind: status.ErrorOther}},
		{release.ErrConflict, status.Outcome{Result: "held", Reason: release.ErrConflict.Error(), ErrorKind: status.ErrorConflict}},
		{&release.HoldError{Hold: "quorum", Err: errors.New("b is down")}, status.Outcome{
			Result: "held", Reason: "held: quorum: b is down", ErrorKind: status.ErrorHeld, Hold: "quorum",
		}},
	} {
		var got status.Outcome
		got.SetError(c.err)
		assert.Equal(t, c.want, got)
	}
}

func TestRunningPulls(t *testing.T) {
	t.Parallel()
	at := func(reference, phase string) status.Progress {
		return status.Progress{Reference: reference, Phase: phase}
	}
	pulls := status.UpdatePulls(nil, at("b", status.PhaseResolving))
	pulls = status.UpdatePulls(pulls, at("a", status.PhaseUnpacking))
	pulls = status.UpdatePulls(pulls, at("c", status.PhaseVerifying))
	pulls = status.UpdatePulls(pulls, at("b", status.PhaseDownloading))
	assert.Equal(t, []status.Progress{at("a", status.PhaseUnpacking), at("b", status.PhaseDownloading)}, pulls)
	for _, end := range []string{status.PhaseDone, status.PhaseFailed, status.PhaseInterrupted} {
		assert.Len(t, status.UpdatePulls(pulls, at("a", end)), 1, end)
	}
}

func TestReporter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []status.Progress
		r := &status.Reporter{To: func(p status.Progress) { got = append(got, p) }}
		_ = r.WhileWaiting("a.yaml", "a", func() error { <-time.After(9 * time.Second); return nil })
		assert.Empty(t, got, "short work reports nothing")
		_ = r.WhileWaiting("a.yaml", "a", func() error { <-time.After(25 * time.Second); return nil })
		waits := status.Progress{Reference: "a", Phase: status.PhaseWaiting, PodManifest: "a.yaml"}
		assert.Equal(t, []status.Progress{waits, waits}, got)
		got = nil
		asks := status.Progress{Reference: "b", Phase: status.PhaseAsking}
		r.Report(asks)
		for _, err := range []error{nil, errors.New("x"), context.Canceled} {
			r.End(asks, err)
		}
		ended := func(phase string) status.Progress {
			return status.Progress{Reference: "b", Phase: phase, Ended: status.PhaseAsking}
		}
		assert.Equal(t, []status.Progress{asks, ended(status.PhaseDone), ended(status.PhaseFailed), ended(status.PhaseInterrupted)}, got)
		var none status.Reporter
		none.Report(asks)
		none.Heartbeat()()
	})
}

func TestStandingHoldHasARemedy(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, kind := range []string{status.ByPerson, status.ByConfiguration} {
		h := status.StandingHold{Repository: "r.io/a", Name: status.HoldRequested, Until: &until, By: status.Actor{Kind: kind}}.Explained()
		assert.NotEmpty(t, h.Remedy, kind)
	}
}

// document has maps and lists, as a record and a status do.
type document struct {
	Spare map[string]string `json:"spare"`
	Kept  map[string]any    `json:"kept"`
	List  []entry           `json:"list"`
}

type entry struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

// An entry that JSON cannot represent does not affect others, and a document that is too large loses entries until it
// fits: spare ones first.
func TestDropFrom(t *testing.T) {
	t.Parallel()
	bad := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	d := document{Kept: map[string]any{"bad": bad, "good": 1}, List: []entry{{Name: "a"}, {Name: "b", At: bad}}}
	dropped := status.DropFrom(&d, "record", 1000, nil)
	assert.Len(t, dropped, 2)
	assert.Equal(t, "record: kept bad", dropped[0].Entry)
	assert.Equal(t, "record: list b", dropped[1].Entry)
	assert.Contains(t, dropped[1].Reason, "year outside of range")
	assert.Equal(t, document{Kept: map[string]any{"good": 1}, List: []entry{{Name: "a"}}}, d)
	large := func(n int) string { return strings.Repeat("x", n) }
	d = document{Spare: map[string]string{"a": large(100), "b": large(200)}, Kept: map[string]any{"c": large(400)}}
	dropped = status.DropFrom(&d, "record", 650, []string{"Spare"})
	assert.Len(t, dropped, 1)
	assert.Equal(t, "record: spare b", dropped[0].Entry)
	assert.Contains(t, dropped[0].Reason, "a limit of 650")
	assert.Len(t, status.DropFrom(&d, "record", 10, []string{"Spare"}), 2)
	assert.Empty(t, d.Kept)
	var s status.Status
	s.ReportDropped(nil)
	assert.Empty(t, s.State)
	for range 2 {
		s.ReportDropped([]status.Dropped{{Entry: "record: a", Reason: "large"}, {Entry: "record: b"}})
		assert.Equal(t, "entry dropped: record: a: large (and 1 more)", s.Reason, "it is said once")
	}
}

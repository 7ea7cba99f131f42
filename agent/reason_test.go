// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Programs read what a state's sentence says from fields.
func TestReasonsHaveKindsAndFields(t *testing.T) {
	const file = "velum.yaml"
	for name, c := range map[string]struct {
		status func(t *testing.T) status.Status
		want   []status.Reason
	}{
		"nothing to do": {
			func(t *testing.T) status.Status { t.Helper(); w, _ := running(t); return w.check() },
			[]status.Reason{{Kind: status.KindNone}},
		},
		"nothing is followed": {
			func(t *testing.T) status.Status { t.Helper(); return newWorld(t).check() },
			[]status.Reason{{Kind: status.KindNone}},
		},
		"an offer": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, _ := running(t)
				w.Registry.Release(velum, "4.0.0", 2, "1.2")
				return w.check()
			},
			[]status.Reason{{Kind: status.KindApproval, PodManifest: file, Change: "revision"}},
		},
		"a hold": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, _ := running(t)
				w.Registry.Release(velum, "4.0.0", 2, "1.2")
				w.check()
				w.hold(record.PersonHold{Until: w.Clock.Now().Add(time.Hour)}, "velum")
				return w.observe()
			},
			[]status.Reason{{Kind: status.KindHold, PodManifest: file, Image: velum, Hold: status.HoldRequested}},
		},
		"a busy node": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, _ := running(t)
				w.Registry.Release(velum, "4.0.0", 2, "1.2")
				w.check()
				w.Grain.SetBusy("update_in_progress")
				s := w.observe()
				hold := podOf(s, file).Holds[0]
				assert.Equal(t, "update_in_progress", hold.Grain)
				assert.Equal(t, "the grain update_in_progress is true", hold.Reason)
				return s
			},
			[]status.Reason{{Kind: status.KindHold, PodManifest: file, Hold: status.HoldBusy}},
		},
		"a source that does not answer": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, _ := running(t)
				w.Registry.Down(&release.SourceError{
					Repository: velum, Host: agenttest.Host, Mirror: true, Status: 503, Cause: release.CauseServerError, Err: errors.New("503"),
				})
				s := w.poll()
				source := s.Sources[0]
				assert.Equal(t, "mirror "+agenttest.Host+": 503", source.Reason)
				assert.Equal(t, velum+": "+source.Reason, source.Error)
				assert.Equal(t, release.CauseServerError, source.Cause)
				assert.Equal(t, 503, source.HTTPStatus)
				assert.Equal(t, status.ErrorSource, image(s, file, "velum").ErrorKind)
				return s
			},
			[]status.Reason{{
				Kind: status.KindSource, Image: velum, Host: agenttest.Host, Cause: release.CauseServerError, HTTPStatus: 503,
			}},
		},
		"a source that has never answered": {
			func(t *testing.T) status.Status {
				t.Helper()
				w := newWorld(t)
				w.Node.PutTemplate(file, podYAML("velum", "velum="+velum+":4.0.0"))
				w.Registry.Down(&release.SourceError{Repository: velum, Host: agenttest.Host, Cause: release.CauseDNS, Err: errors.New("x")})
				w.poll()
				w.restart()
				s := w.observe()
				assert.Equal(t, status.ErrorSource, image(s, file, "velum").ErrorKind, "also of what the record has kept")
				return s
			},
			[]status.Reason{{Kind: status.KindHold, PodManifest: file, Image: velum, Hold: status.HoldWithheld}},
		},
		"nobody was asked": {
			func(t *testing.T) status.Status {
				t.Helper()
				w := newWorld(t)
				w.Node.PutTemplate(file, podYAML("velum", "velum="+velum+":4.0.0"))
				return w.observe()
			},
			[]status.Reason{{Kind: status.KindUnasked, PodManifest: file}},
		},
		"a tag that is gone": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, _ := running(t)
				w.Registry.Retract(velum, "4.0.0-rev1")
				s := w.poll()
				assert.Equal(t, status.ErrorNotFound, image(s, file, "velum").ErrorKind)
				return s
			},
			[]status.Reason{{
				Kind: status.KindTagGone, PodManifest: file, Image: velum, Tag: "4.0.0-rev1", ErrorKind: status.ErrorNotFound,
			}},
		},
		"a pod manifest that cannot be read": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, _ := running(t)
				w.Node.PutTemplate(file, []byte("{"))
				s := w.check()
				assert.Equal(t, status.ErrorOther, podOf(s, file).ErrorKind)
				return s
			},
			[]status.Reason{{Kind: status.KindManifest, PodManifest: file, ErrorKind: status.ErrorOther}},
		},
		"what cannot be staged": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, _ := running(t)
				w.Registry.Release(velum, "4.0.0", 2, "1.2")
				w.Node.OnStage = func(context.Context, release.Release) error { return errors.New("broken") }
				return w.check()
			},
			[]status.Reason{{Kind: status.KindStep, Image: velum, ErrorKind: status.ErrorOther}},
		},
		"a grain that cannot be set": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, _ := running(t)
				w.Grain.Fail(release.ErrConflict)
				w.check()
				return w.check()
			},
			[]status.Reason{{Kind: status.KindStep, ErrorKind: status.ErrorConflict}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assertReasons(t, c.status(t), c.want)
		})
	}
}

// What became of a pod that did not come up.
func TestReasonsOfPodsThatDoNotRun(t *testing.T) {
	const file = "velum.yaml"
	for name, c := range map[string]struct {
		status func(t *testing.T) status.Status
		want   []status.Reason
	}{
		"rolled back": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, _ := running(t)
				w.bad(1, "9.9")
				_, s := w.apply()
				assertReasons(t, s, []status.Reason{{Kind: status.KindRolledBack, PodManifest: file, ErrorKind: status.ErrorNotUp}})
				return w.observe()
			},
			[]status.Reason{{Kind: status.KindRolledBack, PodManifest: file, Tag: "4.0.0-rev1-build9.9"}},
		},
		"rolled back by hand": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, _ := running(t)
				w.Registry.Release(velum, "4.0.0", 2, "1.2")
				w.check()
				w.apply()
				_, s, err := w.agent.Rollback(t.Context(), plan.Named("velum"))
				require.NoError(t, err)
				return s
			},
			[]status.Reason{{Kind: status.KindNone}, {Kind: status.KindRolledBack, PodManifest: file}},
		},
		"not rolled back": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, first := running(t)
				w.Node.Crash(first.Digest, true)
				w.Node.Restart(file, "velum")
				w.bad(1, "1.2")
				_, s := w.apply()
				assertReasons(t, s, []status.Reason{{Kind: status.KindNotUp, PodManifest: file, ErrorKind: status.ErrorNotUp}})
				return w.observe()
			},
			[]status.Reason{{Kind: status.KindNotUp, PodManifest: file}},
		},
		"down": {
			func(t *testing.T) status.Status {
				t.Helper()
				w, first := running(t)
				w.Node.Crash(first.Digest, true)
				w.Node.Restart(file, "velum")
				return w.observe()
			},
			[]status.Reason{{Kind: status.KindDown, PodManifest: file, Container: "velum", Image: velum}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { assertReasons(t, c.status(t), c.want) })
		})
	}
}

// assertReasons compares the reasons of a status but for texts, digests and times.
func assertReasons(t *testing.T, s status.Status, want []status.Reason) {
	t.Helper()
	var got []status.Reason
	for _, r := range s.Reasons {
		assert.Contains(t, s.Reason, r.Text)
		r.Text, r.Digest, r.Since, r.Until, r.RetryAt = "", "", time.Time{}, time.Time{}, time.Time{}
		got = append(got, r)
	}
	assert.Equal(t, want, got, s.Reason)
}

// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

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

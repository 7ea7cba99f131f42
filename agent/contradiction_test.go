// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// TestAContradictionWaitsForApprovalWhereAnotherPodFailed: the state failed names what waits for a person, too.
func TestAContradictionWaitsForApprovalWhereAnotherPodFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Policy.Auto, w.Policy.Rule = true, func(string) policy.Rule { return policy.Rule{Updates: tags.Major} }
	build := func(name string, year int) release.Build {
		return release.Build{Config: digest.FromString(name), Size: 1, Created: time.Date(year, 3, 1, 0, 0, 0, 0, time.UTC)}
	}
	w.Registry.PublishBuild(velum, build("first", 2026), "1.2.2")
	w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":1.2.2"))
	w.Node.PutPodManifest("typo.yaml", podYAML("typo", "main="+velum+":9"))
	w.Policy.Manage = map[string]bool{"velum.yaml": true}
	w.check()
	w.Registry.PublishBuild(velum, build("second", 2025), "1.8.1259")
	s := w.check()
	require.Equal(t, status.StateFailed, s.State, s.Reason)
	assert.Contains(t, s.Reason, "waiting for approval: velum.yaml (minor)")
}

// TestModeAutoLeavesAContradictionToAPerson: 1.8.1259 is of an old scheme of tags, and was created a year before 1.2.2.
func TestModeAutoLeavesAContradictionToAPerson(t *testing.T) {
	t.Parallel()
	lastYear, thisYear := time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		rule         policy.Rule
		running, new time.Time
		waits        bool
	}{
		"created earlier":                     {policy.Rule{Updates: tags.Major}, thisYear, lastYear, true},
		"created later":                       {policy.Rule{Updates: tags.Major}, lastYear, thisYear, false},
		"older builds are allowed":            {policy.Rule{Updates: tags.Major, Older: true}, thisYear, lastYear, false},
		"a reproducible build of 1970":        {policy.Rule{Updates: tags.Major}, thisYear, time.Unix(0, 0), false},
		"a reproducible build of 1980":        {policy.Rule{Updates: tags.Major}, thisYear, time.Unix(315532800, 0), false},
		"what runs is of 1980":                {policy.Rule{Updates: tags.Major}, time.Unix(315532800, 0), lastYear, false},
		"the new one says no time":            {policy.Rule{Updates: tags.Major}, thisYear, time.Time{}, false},
		"a pod that is older than the record": {policy.Rule{Updates: tags.Major}, time.Time{}, lastYear, false},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.Policy.Auto, w.Policy.Rule = true, func(string) policy.Rule { return c.rule }
				build := func(name string, at time.Time) release.Build {
					return release.Build{Config: digest.FromString(name), Size: 1, Created: at}
				}
				first := w.Registry.PublishBuild(velum, build("first", c.running), "1.2.2")
				w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":1.2.2"))
				w.Node.Sync()
				w.Policy.Manage = map[string]bool{"velum.yaml": true}
				w.restart()
				w.check()
				second := w.Registry.PublishBuild(velum, build("second", c.new), "1.8.1259")
				s := w.check()
				if !c.waits {
					w.runs("velum.yaml", "velum", second.Digest)
					assert.Equal(t, c.rule.Older, s.History[0].Reason != "", s.History[0].Reason)
					return
				}
				w.runs("velum.yaml", "velum", first.Digest)
				note := "1.8.1259 is newer by name than 1.2.2, but was created earlier (2025-03-01T00:00:00Z, 2026-03-01T00:00:00Z)"
				assert.Equal(t, status.StateHeld, s.State)
				assert.Contains(t, s.Reason, "contradiction: "+note)
				i := image(s, "velum.yaml", "velum")
				assert.Contains(t, i.Notes, note)
				assert.Equal(t, status.Explained([]status.Hold{{Name: status.HoldContradiction, Image: velum, Reason: note}}), i.Holds)
				w.idle()

				out, _ := w.apply()
				require.Len(t, out, 1)
				assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				w.runs("velum.yaml", "velum", second.Digest)
				w.restart()
				s = w.observe()
				assert.Equal(t, status.ResultApplied, s.History[0].Result)
				assert.Equal(t, note, s.History[0].Reason)
				assert.Equal(t, status.StateCurrent, s.State, s.Reason)
			})
		})
	}
}

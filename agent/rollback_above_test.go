// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A person restores an old pod manifest by mistake and rolls the pod back to its earlier release, which is above the
// tag that the pod manifest follows.
func rolledBackAbove(t *testing.T) (*world, digest.Digest) {
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.brings("4.0.0-rev1")
	w.check()
	old := []byte(w.Node.PodManifest("velum.yaml"))
	third := w.Registry.Release(velum, "4.0.0", 3, "1.3")
	w.check()
	w.apply()
	w.runs("velum.yaml", "velum", third.Digest)
	w.Node.PutPodManifest("velum.yaml", old)
	w.observe()
	out, _, err := w.agent.Rollback(t.Context(), plan.All())
	require.NoError(t, err)
	require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
	w.runs("velum.yaml", "velum", third.Digest)
	return w, third.Digest
}

// The release that runs is withdrawn, and one between it and the followed tag is there: it is newer than the tag, and
// older than what runs.
func TestNoLowerReleaseIsOfferedAfterARollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, third := rolledBackAbove(t)
		w.Registry.Release(velum, "4.0.0", 2, "1.2")
		w.Registry.Retract(velum, "4.0.0-rev3")
		w.Registry.Retract(velum, "4.0.0-rev3-build1.3")
		i := image(w.check(), "velum.yaml", "velum")
		assert.Nil(t, i.Offered)
		assert.Empty(t, i.Change)
		assert.Contains(t, i.Refused, policy.Refusal{
			Tag: "4.0.0-rev2-build1.2", Rule: policy.RuleOlder, Reason: "4.0.0-rev3-build1.3 runs, and is newer", Key: "older: true", Holds: true,
		})
		w.apply()
		w.runs("velum.yaml", "velum", third)

		next := w.Registry.Release(velum, "4.0.0", 4, "1.4")
		w.check()
		w.apply()
		w.runs("velum.yaml", "velum", next.Digest)
	})
}

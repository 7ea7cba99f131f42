// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// An adapter that lets a time through which JSON cannot write costs the entry that has it: what other pods need is
// kept, shown, applied, held and rolled back.
func TestInvalidEntryIsDroppedAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	fatal := built("bad", time.Date(10_000, time.January, 1, 0, 0, 0, 0, time.UTC), "")
	w.Registry.PublishBuild(etcd, fatal, "3.4.3-rev1", "3.4.3-rev1-build1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
	w.Node.PutTemplate("etcd.yaml", podYAML("etcd", "etcd="+etcd+":3.4.3-rev1"))
	w.check()
	next := w.Registry.Release(velum, "4.0.0", 2, "1.1")
	for _, s := range []status.Status{w.check(), w.observe()} {
		assert.Equal(t, status.StateFailed, s.State)
		assert.Contains(t, s.Reason, "not kept: ")
		require.NotEmpty(t, s.Dropped)
		for _, d := range s.Dropped {
			assert.Contains(t, d.Entry, etcd)
			assert.Contains(t, d.Reason, "year outside of range")
		}
		_, err := json.Marshal(s)
		require.NoError(t, err)
		assert.NotEmpty(t, image(s, "velum.yaml", "velum").Offered)
	}
	w.hold(record.PersonHold{}, "etcd")
	out, _ := w.apply("velum")
	require.Len(t, out, 1)
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	w.runs("velum.yaml", "velum", next.Digest)
	w.restart()
	assert.Contains(t, w.Disk.JSON(), `"holds":{"`+etcd)
	out, _, err := w.agent.Rollback(t.Context(), plan.Named("velum"))
	require.NoError(t, err)
	require.Len(t, out, 1)
	assert.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)

	w.check()
	w.Registry.Release(etcd, "3.4.3", 1, "1.2")
	assert.Empty(t, w.check().Dropped, "it is told until the next poll has nothing to drop")
}

// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// members are a control plane as a test wants it.
type members struct {
	seen  func(asked int) fleet.Observation
	asked int
	files []node.PodFile
}

func (m *members) Observe(_ context.Context, files []node.PodFile) fleet.Observation {
	m.asked++
	m.files = files
	return m.seen(m.asked)
}

var (
	allHealthy = fleet.Observation{Members: []fleet.Part{{Name: "etcd member a", Local: true, Healthy: true}, {Name: "etcd member b", Healthy: true}}}
	oneDown    = fleet.Observation{Members: []fleet.Part{{Name: "etcd member a", Local: true, Healthy: true}, {Name: "etcd member b", Seen: "refused"}}}
)

// A member that is down anyway holds the others, before the lock is asked for.
func TestMemberThatIsDownHoldsTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, second := member(t)
		m := &members{seen: func(int) fleet.Observation { return oneDown }}
		w.restart()
		w.agent.Quorum = m
		s := w.check()
		w.runs("etcd.yaml", "etcd", first.Digest)
		w.requests(0, 0)
		assert.Equal(t, status.StateHeld, s.State)
		assert.Contains(t, s.Reason, "etcd.yaml: apply: held: quorum: etcd member b: refused")
		assert.Equal(t, status.HoldQuorum, s.Reasons[0].Hold)
		require.Len(t, m.files, 1)
		assert.Equal(t, "etcd.yaml", m.files[0].Name)
		out, _ := w.apply("etcd")
		assert.Equal(t, status.HoldQuorum, out[0].Hold)
		m.seen = func(int) fleet.Observation { return allHealthy }
		w.Clock.Add(10 * time.Minute)
		w.observe()
		w.runs("etcd.yaml", "etcd", second.Digest)
		w.requests(1, 1)
	})
}

// Another node may have had the lock between the first look at the members and our turn.
func TestMembersAreAskedAgainUnderTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, _ := member(t)
		m := &members{}
		m.seen = func(asked int) fleet.Observation {
			if asked == 1 {
				assert.Empty(t, w.Fleet.Holders())
				return allHealthy
			}
			return oneDown
		}
		w.restart()
		w.agent.Quorum = m
		s := w.check()
		w.runs("etcd.yaml", "etcd", first.Digest)
		assert.Empty(t, w.Fleet.Holders(), "the lock is given back")
		assert.Equal(t, fleet.LockFree, s.Lock.State)
		w.requests(1, 1)
	})
}

func TestOtherPodsAreNoMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.restart()
		w.agent.Quorum = &members{seen: func(int) fleet.Observation { t.Error("asked"); return oneDown }}
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result)
	})
}

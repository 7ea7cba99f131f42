// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// enabled remembers what was enabled, or cannot.
type enabled struct {
	all []ownhost.Wanted
	err error
}

func (e *enabled) Wanted() ([]ownhost.Wanted, error)             { return e.all, e.err }
func (*enabled) Why(w ownhost.Wanted, _ ownhost.Position) string { return w.File + " is gone" }

// A gate that another program has taken out of hosts.toml is open: the node has failed until it is back, or not wanted.
func TestALostOwnHostFailsTheNode(t *testing.T) {
	t.Parallel()
	w, _ := ownHostWorld(t, ownhost.Gate)
	memory := &enabled{all: []ownhost.Wanted{{Registry: suse, Position: ownhost.Gate, File: "/c/hosts.toml"}}}
	w.agent.OwnHost.Memory = memory
	require.Equal(t, status.StateCurrent, w.observe().State)
	for _, at := range []ownhost.Position{ownhost.Off, ownhost.Fallback} {
		w.Hosts.SetPosition(suse, at)
		s := w.observe()
		require.Equal(t, status.StateFailed, s.State)
		require.Equal(t, status.KindOwnHost, s.Reasons[0].Kind)
		assert.Equal(t, suse, s.Reasons[0].Host)
		assert.Contains(t, s.Reason, "own host: it was enabled for registry.suse.com as gate: /c/hosts.toml is gone")
		assert.Equal(t, []ownhost.LostRegistry{{Registry: suse, Wanted: "gate", Position: at, Reason: "/c/hosts.toml is gone"}}, s.OwnHost.Lost)
	}
	memory.all = nil
	assert.Equal(t, status.StateCurrent, w.observe().State, "it was disabled")
	memory.err = errors.New("localhost-wanted.json: no JSON")
	s := w.observe()
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "for which registries it was enabled is not known: localhost-wanted.json: no JSON")
}

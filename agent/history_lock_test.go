// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
)

// locks has the node restart all pods under the lock of a fleet.
func (h *history) locks() {
	h.Fleet = &agenttest.Fleet{}
	h.Policy.Lock = fleet.Lock{Pods: fleet.LockAll, Server: "https://lock", Group: "g", ID: "me"}
}

// lockOps are what happens to the lock: another node takes it when it is free and gives it back, and the server goes
// away, before it gave the lock or after.
func (h *history) lockOps() []op {
	return []op{
		{"another node locks", func() {
			_, err := h.Fleet.Node("other").Lock(h.t.Context())
			require.True(h.t, err == nil || len(h.Fleet.Holders()) > 0)
		}},
		{"another node unlocks", func() { h.Fleet.Drop("other") }},
		{"the lock server", func() {
			lost, down := rapid.Bool().Draw(h.t, "lost"), rapid.Bool().Draw(h.t, "down")
			h.Fleet.OnLock = func(id string) (bool, error) {
				if down && id == "me" {
					return lost, errors.New("connection refused")
				}
				return false, nil
			}
			h.Fleet.OnUnlock = func(string) error {
				if down {
					return errors.New("connection refused")
				}
				return nil
			}
		}},
	}
}

// unlock has the lock server back, with nobody else waiting, and asserts that the nodes took turns.
func (h *history) unlock() {
	h.Fleet.OnLock, h.Fleet.OnUnlock = nil, nil
	h.Fleet.Drop("other")
	if h.lostLock && h.record().Lock.State == "" {
		h.Fleet.Drop("me") // by a person: see TestLockOfALostRecordIsAPersonsToRelease
	}
	h.Clock.Add(time.Hour) // the server is asked again by then
	require.LessOrEqual(h.t, h.Fleet.Most(), 1)
}

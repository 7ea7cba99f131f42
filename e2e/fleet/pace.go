// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math/rand/v2"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
)

// Node is the input of a pace.
type Node struct {
	ID       string    // its machine id
	Started  bool      // it has just started
	Failures int       // consecutive failed polls
	Wish     time.Time // the host's Retry-After; zero: none
	rand     *rand.Rand
}

// Jitter returns a number from [0,1), different at each call.
func (n *Node) Jitter() float64 { return n.rand.Float64() }

// Pace returns when a node polls next, after a start or a poll.
type Pace func(n *Node, now time.Time) time.Time

// Slots is the agent's pace: a fixed slot for each node, and a retry after a failure.
func Slots(n *Node, now time.Time) time.Time {
	var retries []time.Time
	if n.Failures > 0 {
		retries = append(retries, policy.RetryTime(now, n.Wish, n.Failures, n.Jitter()))
	}
	return policy.Earliest(policy.NextSlot(now, Interval, n.ID), retries)
}

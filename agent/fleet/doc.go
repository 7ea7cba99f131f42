// SPDX-License-Identifier: Apache-2.0

// Package fleet decides when this node may stop a pod without harm to the other nodes: one node at a time, and only
// while the control plane can spare a member.
//
// The nodes of a fleet share a lock through a lock server. A Lock is its configuration, a LockRecord this node's
// requests for it, a LockStatus its state for people. A Keeper takes and releases it through a Locker, which the
// adapter of a protocol implements. A pod manifest needs the lock if the configuration covers it (Lock.Covers): it
// waits for the lock, is restarted under it, and must pass its health check before the lock is released.
//
// The quorum is the number of members that the control plane needs. An Observation is the state of its members at one
// moment, each of them a Part. The lock server does not know which members are down, so the agent queries the others
// before it stops one.
//
// # Promises
//
//   - The record is saved before each request to the server, so that a crash forgets no lock.
//   - The node releases only a lock that it requested, and only at the server that granted it.
//   - The lock has no time-out: the node keeps it until every pod restarted under it has passed its health check.
//   - A member on this node is not stopped while another one is unhealthy or unknown. A part of this node that is
//     unhealthy does not prevent its own restart.
package fleet

// SPDX-License-Identifier: Apache-2.0

// Package fleet decides when this node may stop a pod without harm to the nodes beside it: one node at a time, and only
// while the control plane can spare a member.
//
// The lock is one that the nodes of a fleet share through a lock server. A Lock is the one that is configured, a
// LockRecord what this node did about it, a LockStatus how people see it. A Keeper takes it and gives it back through a
// Locker, which the adapter of a protocol implements. A pod manifest needs the lock if the configuration covers it
// (Lock.Covers); it waits for it, is restarted under it, and is proved before the lock is given back.
//
// The quorum is what the control plane needs to go on. An Observation is what is seen of its members at one moment,
// each of them a Part. The lock does not see a member that is down anyway, so the others are asked before one is
// stopped.
//
// # Promises
//
//   - The record says what is asked for before the server is asked, so that a crash forgets no lock.
//   - Nothing is given back but what this node asked for, and nothing at another server than the one that gave it.
//   - The lock has no time-out: it is kept while a pod that was restarted under it is not proved.
//   - A member of this node does not go down while another one is not healthy or not known. A part of this node that is
//     not healthy is not against its own restart.
package fleet

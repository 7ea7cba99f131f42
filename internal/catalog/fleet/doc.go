// SPDX-License-Identifier: Apache-2.0

// Package fleet tells how many nodes run a release of a channel, from the agents' metrics in a Prometheus, and whether
// its rollout may go on.
//
// # Words
//
// A node is a value of the label instance. It reports if Prometheus has its current metric for the image. It is silent
// if Prometheus has had one within a day. It is lost if it had begun the release (ran it, started it, or failed), and
// has not reported for 15 minutes, or if its agent has not done a cycle for an hour: a reboot takes less.
//
// # Promises
//
//   - A node counts once for each release.
//   - A release of which no node reports anything is not known to be well, nor is one of several machines with one
//     name.
package fleet

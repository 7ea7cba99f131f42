// SPDX-License-Identifier: Apache-2.0

// Package watch tracks which containers of the node must run. It turns runtime events into observations, and adds
// containers that ended during a cycle to the status.
//
// Polls are 12 hours apart; meanwhile kubelet picks up digests and people edit files. So the node is observed every ten
// minutes, and a second after an event. Events decide nothing: they only cause an observation.
package watch

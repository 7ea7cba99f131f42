// SPDX-License-Identifier: Apache-2.0

// Package watch knows which containers of the node have to run. It turns the events of the
// container runtime into observations, and shows what has ended while a cycle runs.
package watch

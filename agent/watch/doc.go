// SPDX-License-Identifier: Apache-2.0

// Package watch knows which containers of the node must run. It turns runtime events into
// observations, and adds to the status the containers that have ended during a cycle.
package watch

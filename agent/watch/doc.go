// SPDX-License-Identifier: Apache-2.0

// Package watch tracks which containers of the node must run. It turns runtime events into observations, and adds
// containers that ended during a cycle to the status.
package watch

// SPDX-License-Identifier: Apache-2.0

// Package record holds the state that the agent cannot observe again, or only with a request: answers, approvals,
// holds, denials, known good releases. The Store of a running agent owns the Record; only the methods of the Record and
// of its maps change it. Retain removes the data that the node does not need.
package record

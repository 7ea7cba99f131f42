// SPDX-License-Identifier: Apache-2.0

// Package record holds the state that the agent cannot observe again, or only with a request: answers, approvals,
// holds, denials, known good releases. The Store of a running agent owns the Record; only the methods of the Record and
// of its maps change it. Retain removes the data that the node does not need.
//
// An approval names pod, digests and rendered file as one hash: its tag may move to a build that nobody staged, or the
// registry may go away for a week. It is void when one of them changes, after one attempt, after a day, or by a hold. A
// denial is per node, since the node may be the cause; it ends with `apply --retry`, when the digest runs healthy, or
// after 90 days in which nothing names it. The history is in the record, so that no crash separates a change from the
// result of its health check.
package record

// SPDX-License-Identifier: Apache-2.0

// Package plan makes the decisions. Decide plans a cycle, AtBoot the writes before kubelet starts, and Rollbacks a
// person's rollback: each from an inventory, offers, the record, the policy and the time. All are pure: they do no I/O,
// change none of their arguments and may run concurrently.
//
// A PodPlan is the decision about one pod manifest, with its holds. A Step is one idempotent action.
//
// Rules are applied in every plan, not in polls: after a stricter rule and a reload the old choice would still be
// offered. So an offer keeps candidates, allowed and refused ones. An older build is judged against what runs: lost
// records and restarts change nothing.
package plan

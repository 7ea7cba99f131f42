// SPDX-License-Identifier: Apache-2.0

// Package plan makes the decisions. Decide plans a cycle, AtBoot the writes before kubelet starts, and Rollbacks a
// person's rollback: each from an inventory, offers, the record, the policy and the time. All are pure: they do no I/O,
// change none of their arguments and may run concurrently.
//
// A PodPlan is the decision about one pod manifest, with its holds. A Step is one idempotent action.
package plan

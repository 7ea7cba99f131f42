// SPDX-License-Identifier: Apache-2.0

// Package plan decides. Decide plans a cycle, AtBoot the time before kubelet starts,
// Rollbacks a person's rollback: each from an inventory, offers, the record, the policy and
// the time. All are pure: they do no I/O, change none of their arguments and may run
// concurrently.
//
// A PodPlan is the decision about one pod manifest, with the holds against it. A Step is one
// thing to do; it can be repeated.
package plan

// SPDX-License-Identifier: Apache-2.0

// Package plan decides. Decide makes the plan of a cycle, AtBoot that of the time before
// kubelet starts, from an observation, the offers of the source, the record, the policy and
// the time. Both are pure: they read no file, clock or network, change none of their
// arguments, and may be called by several goroutines at once.
//
// A Step is one thing to do; it can be repeated. A PodPlan says what is to become of one
// pod manifest, and why not more.
package plan

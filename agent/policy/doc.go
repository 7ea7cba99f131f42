// SPDX-License-Identifier: Apache-2.0

// Package policy holds the administrator's settings as values: the rules of each repository, why a rule refuses a
// release (Refusal), how much of the disk stays free (Reserve), and when a source is asked again (Backoff, NextSlot).
// It keeps no state and no cache, so several goroutines may use one Policy.
package policy

// SPDX-License-Identifier: Apache-2.0

// Package policy holds the administrator's settings as values: the rules of each repository, why a rule refuses a
// release (Refusal), how much of the disk stays free (Reserve), and when a source is asked again (Backoff, NextSlot).
// It keeps no state and no cache, so several goroutines may use one Policy.
//
// Why slots: a thousand nodes that poll at once overload a mirror, random delays change at each restart, and doubling
// back-off sends seven requests in an interval after an outage. So a hash of the machine id places the node in the
// interval, and a failed source is asked again after 5 minutes and after 1 hour (times 0.5 to 1.5), then in the slot.
// Retry-After is never undercut.
package policy

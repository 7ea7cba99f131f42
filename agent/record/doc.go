// SPDX-License-Identifier: Apache-2.0

// Package record holds what cannot be observed again, or only at the price of a request:
// answers, approvals, holds, denials, what ran well. The Store of a running agent owns the
// Record; only the methods of the Record and of its maps change it. Retain removes what the
// node does not need.
package record

// SPDX-License-Identifier: Apache-2.0

// Package record holds what cannot be observed again, or only at the price of a request:
// answers, approvals, holds, denials, what ran well. The Store of a running agent owns the
// Record; only the methods of the record and of its maps change it. What the node does not
// need any more is removed (Retain).
package record

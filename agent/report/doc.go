// SPDX-License-Identifier: Apache-2.0

// Package report makes the status document from a plan, the record and what went wrong in
// a cycle. It is pure.
package report

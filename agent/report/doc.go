// SPDX-License-Identifier: Apache-2.0

// Package report makes the status document from a plan, the record and the errors of a cycle.
// It is pure.
package report

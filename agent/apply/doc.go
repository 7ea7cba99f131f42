// SPDX-License-Identifier: Apache-2.0

// Package apply makes pods run what a step of a plan names, and proves that they do. It
// decides nothing: a step that fails leaves the node as it was or records a pending rollback,
// and reports both in its Result.
package apply

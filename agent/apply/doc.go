// SPDX-License-Identifier: Apache-2.0

// Package apply makes pods run the releases that a step of a plan names, and runs their health checks. It decides
// nothing: a failed step leaves the node as it was or records a pending rollback, and reports both in its Result.
package apply

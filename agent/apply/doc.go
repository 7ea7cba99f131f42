// SPDX-License-Identifier: Apache-2.0

// Package apply makes pods run what a step of a plan names, and proves that they do. It
// decides nothing: a step that fails leaves the node as it was before, or records what the
// pod is rolled back to, and says so in its RestartResult. What it does is in the record
// before the next act, so that a crash in the middle goes on.
package apply

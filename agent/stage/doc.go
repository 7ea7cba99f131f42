// SPDX-License-Identifier: Apache-2.0

// Package stage stages releases: it verifies their signatures, pulls and pins them, and checks that kubelet will find
// them. Space reserves disk space for concurrent pulls. The package returns results and makes no decisions.
package stage

// SPDX-License-Identifier: Apache-2.0

// Package stage stages releases: it looks for their signatures, pulls and pins them, and
// checks that kubelet will find them. Space reserves what the pulls that run side by side
// need. A result says how a staging has ended; nothing is decided here.
package stage

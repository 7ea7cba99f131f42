// SPDX-License-Identifier: Apache-2.0

// Package source asks a source for releases with as few requests as possible. The Asker asks the questions of one
// Round, which requests no answer twice, and returns an Offer for each. A digest that is new to the node counts only
// after a second reading.
package source

// SPDX-License-Identifier: Apache-2.0

// Package source asks a source of releases, as cheaply as it allows. A Round is one round
// of questions, in which no answer is asked for twice; an Offer is what the source has for
// one question. A digest that is new to the node counts only when it was read twice.
package source

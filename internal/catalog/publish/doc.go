// SPDX-License-Identifier: Apache-2.0

// Package publish changes release catalogs in a registry (see internal/catalog for the format).
//
// # Words
//
//   - A Publisher acts on one catalog, with or without a key.
//   - An outcome is what became of a change. An op that no publisher can fold waits, with a
//     reason.
//   - A directory that was written to be signed elsewhere holds all that a version needs but its
//     signature.
//
// # Promises
//
//   - A change that was reported as done is in the channel, or in an op that the next publisher
//     folds. This needs no lock and no compare-and-swap of the registry, and holds when a
//     publisher dies at any request, and beside those who prune.
//   - A batch is checked as a whole before anything is written.
//   - With keys, only signed versions are built upon, and only signed ops are folded. Without
//     a key, a signed channel is not changed.
//   - What a registry sends is bounded, and compared with its digest.
package publish

// SPDX-License-Identifier: Apache-2.0

// Package publish changes release catalogs in a registry (see internal/catalog for the format).
//
// # Words
//
//   - A Publisher acts on one catalog, with or without a key.
//   - An outcome is the result of a change. An op that no publisher can fold is pending, with a
//     reason.
//   - Out is a directory with everything that a version needs except its signature, which is made
//     on another machine.
//
// # Promises
//
//   - A change that was reported as done is in the channel, or in an op that the next publisher
//     folds. This needs no lock and no compare-and-swap of the registry, and holds when a
//     publisher dies at any request, and while others prune.
//   - A batch is checked as a whole before anything is written.
//   - With keys, a publisher builds on signed versions and folds signed ops only. Without a key, it
//     does not change a signed channel.
//   - Every answer of a registry is bounded, and compared with its digest.
package publish

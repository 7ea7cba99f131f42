// SPDX-License-Identifier: Apache-2.0

// Package publish changes release catalogs in a registry (see internal/catalog for the format, and internal/catalog/ops
// for what ops make of a version).
//
// # Words
//
//   - A Publisher acts on one catalog, with or without keys.
//   - A View is a channel as its next publisher finds it: its newest version, and the pending ops that count.
//   - A Verb makes a Draft of a View: the ops that its caller wants, or why not.
//   - Trust says which keys a channel has. What others have signed is named, and does not count.
//   - Out is a directory with everything that a version needs except its signature, which is made on another machine.
//
// # Promises
//
//   - A change that was reported as done is in the channel, or in an op that the next publisher folds. This needs no
//     lock and no compare-and-swap of the registry, and holds when a publisher dies at any request, and while others
//     prune. Where another publisher has asked for something else at the same time, the result says what does not hold.
//   - A result names every op in the version that the caller did not ask for.
//   - A batch is checked as a whole before anything is written.
//   - Without a key, a publisher does not change a signed channel.
//   - Every answer of a registry is bounded, and compared with its digest. Rounds, waits and times are bounded.
//
// Why no KMS and no PKCS#11: sigstore's four signers are 25.8 MB and 85 modules, and PKCS#11 needs cgo. Out is signed
// by any tool instead.
package publish

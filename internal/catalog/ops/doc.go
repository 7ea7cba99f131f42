// SPDX-License-Identifier: Apache-2.0

// Package ops decides what the ops of a channel make of a version. It is pure.
//
// # Words
//
//   - A State is the content of a channel. Fold folds ops into it.
//   - The turn of an op orders it: the number is above that of each op that its publisher knew. No clock orders ops.
//   - Again marks an op that offers withdrawn releases on purpose, and Calm one that counts while a channel is frozen.
//   - A Want is what a publisher asks for; Asked is the op of it.
//
// # Laws
//
//   - A withdrawal absorbs: only an op with Again that knew it offers the release again, in whatever order they come.
//   - A frozen channel takes no op that adds or promotes, unless that op is calm.
//   - The order of ops and the number of calls do not matter, and folding twice is folding once.
//   - An advisory that somebody has noted is replaced only by a later note, whatever else becomes of the release.
//   - A digest that is listed is never replaced.
package ops

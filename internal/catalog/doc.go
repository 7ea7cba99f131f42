// SPDX-License-Identifier: Apache-2.0

// Package catalog reads and writes release catalogs, which are OCI artifacts that list
// releases by digest. docs/dev/catalog-format.md specifies the format.
//
// # Words
//
//   - A catalog is a repository of a registry. It has channels, such as stage and prod.
//   - A version of a channel is a Manifest under two tags: the channel's name, which moves,
//     and the version tag, which does not.
//   - A Page lists the releases of one image. A manifest refers to its pages by digest.
//   - An Op is a change that a publisher asks for. It has a tag of its own. Whoever publishes
//     next folds all new ops into the next version.
//   - A set is a name that releases of several images share. A node applies all or none.
//
// # Promises
//
//   - Decoding is bounded in bytes, also after unpacking, and in the number of entries. Every
//     name, digest, tag, time and text is checked.
//   - Encoding is deterministic. Fields that this package does not know are kept.
package catalog

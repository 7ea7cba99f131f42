// SPDX-License-Identifier: Apache-2.0

// Package images manages the node's images: it implements node.Images with containerd's own API, for servers 1.6 to
// 2.x.
//
// # Words
//
// A record is what containerd calls an image: a name, the digest it points to and labels, in a namespace; CRI uses the
// namespace k8s.io. The content store holds blobs by digest, the snapshotter their unpacked form; both drop everything
// that no record and no lease refers to. A pin is a record of the agent that protects an image from kubelet's garbage
// collector (containerd 1.7 and later) by its label. The label cannot be on the tag's own record, because a CRI pull
// wipes it there.
//
// # Promises
//
//   - Staging writes two records: the long tag (or the digest), and last the pin. A
//     complete pin means that the image is unpacked for this node's platform.
//   - Staging never writes the floating tag: that would let an unapproved image start.
//   - Naming writes one record, repository@digest, so that CRI finds the image
//     without a registry.
//   - After an error of staging the records are as before, unless containerd is unreachable.
//   - Records of others are never written or removed, except for a tag's record that is not an
//     image (Restore).
//   - The agent's lease keeps a partial pull for the next attempt, for a day at most, if it can
//     be resumed; after a full disk it is removed before Stage returns.
//   - Staging survives a restart of containerd.
//   - Concurrent pulls share slots, bandwidth and layers: each blob is fetched once and
//     each layer unpacked once.
//   - Every call opens its own connection, so that an idle agent holds none.
//
// Why a failed pull keeps its lease: on a thin line a layer takes an hour, and an ended connection, a stopped agent or
// an update of containerd must not cost what has arrived. Each layer must bring staging.leastSpeed over a minute of
// waiting, so that one byte in 30 seconds does not hold a slot.
package images

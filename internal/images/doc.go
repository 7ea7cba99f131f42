// SPDX-License-Identifier: Apache-2.0

// Package images keeps the node's image store: it is node.Images over
// containerd's own API, for servers 1.6 to 2.x.
//
// # Words
//
// A record is what containerd calls an image: a name, the digest it points to
// and labels, in a namespace. CRI works in the namespace k8s.io and lists the
// records that it finds there. The content store holds blobs by digest, the
// snapshotter their unpacked form; both drop what no record and no lease
// points to. A pin is a record of our own whose only purpose is to point: its
// label tells kubelet's image garbage collector (containerd 1.7 and later) to
// leave the image alone. A pin cannot be the label on the tag's own record,
// because a CRI pull of the tag wipes that.
//
// # Promises
//
// A pin is written last: where it stands and is complete, the image is there,
// unpacked, for this node's platform. Staging writes two records, the long tag
// (or the digest) and the pin, and never the floating tag, because that would
// let an unapproved image start. Naming writes one, repository@digest, by which
// CRI finds the image without a registry. When staging ends with an error, the
// records are as they were, unless containerd is away. Records that are not
// ours are read, never written and never removed.
//
// What a pull has brought is kept for the next attempt by our lease, a day at
// most, where there is hope that it is of use; after a full disk it is gone when
// Stage returns. A containerd that restarts in the middle is waited for. Pulls
// at the same time share slots, bandwidth and layers: each blob is fetched once,
// and each layer unpacked once.
//
// Every call opens its own connection, so that an idle agent holds none.
package images

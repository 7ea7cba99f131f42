// SPDX-License-Identifier: Apache-2.0

// Package images keeps the node's image store: it is agent.Images over
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
// let an unapproved image start. When staging ends with an error, the records
// are as they were and the lease is gone; a lease that a killed agent left
// expires by itself, and goes as soon as the same release is staged again or
// is not wanted any more. Records that are not ours are read, never written,
// and removed only when Prune is given them.
//
// Every call opens its own connection, so that a containerd that was
// restarted is simply there again, and an idle agent holds none.
package images

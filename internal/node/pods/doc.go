// SPDX-License-Identifier: Apache-2.0

// Package pods implements node.Pods with CRI v1, the API between kubelet and the container runtime.
//
// # Words
//
// A sandbox holds the namespaces that the containers of a pod share. An attempt is one start of a container within a
// pod; kubelet counts them and keeps the last ended one for its log. A static pod is one that kubelet read from a file,
// by the annotations of its sandbox. The image id is the digest of an image's config: the only reliable identity of a
// running image in CRI, since a container's status shows any of the image's tags.
//
// # Promises
//
//   - Reading changes nothing.
//   - Stop and Clear are idempotent: a missing container counts as stopped.
//   - The time of calls and the size of answers are limited; the latter by kubelet's own limit.
//   - Every call opens its own connection, and so survives a restart of the runtime.
package pods

// SPDX-License-Identifier: Apache-2.0

// Package pods looks at the node's containers the way kubelet does: it is
// node.Pods over CRI v1, the API between kubelet and the container runtime.
//
// # Words
//
// A sandbox is what CRI makes of a pod: the namespaces that its containers
// share. It is ready while they stand. An attempt is one start of a container within a pod; kubelet counts
// them and keeps the last dead one for its log. A static pod is one that
// kubelet read from a file; it says so in the sandbox's annotations. The image
// id is the digest of an image's config. It is the only thing in CRI that
// tells what really runs: the tag that a container's status shows is whatever
// record the runtime found first.
//
// # Promises
//
// Reading changes nothing. Stop and Clear are repeatable: what is gone
// counts as stopped. No call waits for ever, and no answer larger than kubelet
// itself would take is read. Every call opens its own connection, so that a
// restarted runtime is simply there again.
package pods

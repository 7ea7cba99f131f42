// SPDX-License-Identifier: Apache-2.0

// Package follow finds the tags that the pod manifests of a node follow: for each image of a pod manifest or its
// template, the question to a source. It is pure.
package follow

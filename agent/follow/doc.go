// SPDX-License-Identifier: Apache-2.0

// Package follow finds what the pod manifests of a node follow: for each image of a pod
// manifest or its template, the question that it puts to a source. It is pure.
package follow

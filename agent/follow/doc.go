// SPDX-License-Identifier: Apache-2.0

// Package follow finds what the pod manifests of a node follow: the question to a source for each
// image of a pod manifest or its template. It is pure.
package follow

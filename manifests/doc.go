// SPDX-License-Identifier: Apache-2.0

// Package manifests finds the image references in the pod manifest of a static pod and renders a template into the pod
// manifest for kubelet. It only maps bytes to bytes.
//
// Words:
//
//   - Pod manifest: a YAML or JSON file with one Pod that kubelet reads from its
//     directory. Kubelet uses the first document of a file; images in the
//     others are reported and never edited.
//   - File: a parsed pod manifest. It is read-only, so goroutines share it.
//   - Reference: the value of an image field, a repository with optional tag and
//     digest. Repository includes the registry host where there is one.
//   - Template: a pod manifest that may have the Placeholder in place of tags.
//   - Probe: a check that kubelet runs against a container: has it started, is it alive, is it ready.
//   - To pin: to set an image to one digest and a pull policy that needs no
//     registry.
//   - Image: one place that names an image, with its text, and
//     whether it can be edited, or the Reason why not.
//
// Promises: a rendered or pinned file differs from its source only in image references and pull policies; every other
// byte is kept. Render and Pin parse their result again and compare the trees before they return a byte of it.
// Rendering is idempotent. The size of the input is limited as in internal/base/yamledit.
package manifests

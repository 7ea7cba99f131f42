// SPDX-License-Identifier: Apache-2.0

// Package manifests finds the image references in the pod manifest of a static
// pod and renders a template into the pod manifest that kubelet shall have: pure
// bytes in, bytes out.
//
// Words:
//
//   - Pod manifest: a YAML or JSON file with one Pod, as kubelet reads it from its
//     directory. Of several documents kubelet takes the first; images in the
//     others are reported and never edited.
//   - File: a parsed pod manifest. It is read-only, so goroutines share it.
//   - Reference: what an image field says, repository with optional tag and
//     digest. Repository includes the registry host where there is one.
//   - Template: a pod manifest whose tags may be the Placeholder.
//   - Probe: how kubelet asks whether a container is ready to serve.
//   - To pin: to set an image to one digest, with a pull policy that needs no
//     registry.
//   - Image: one place that names an image, with what is written there, and
//     whether it may be edited, or the Reason why not.
//
// Promises: a rendered or pinned file differs from what it was made of in image
// references and pull policies only; every other byte is kept. Render and Pin
// parse their result again and compare the trees before they return a byte of it.
// Rendering twice is rendering once. Input is bounded as in internal/yamledit.
package manifests

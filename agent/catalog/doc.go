// SPDX-License-Identifier: Apache-2.0

// Package catalog applies a release catalog to a node. A release catalog is a publisher's list of promoted releases,
// one signed artifact in a registry.
//
// A Channel reads it and returns a verified Listing. A Policy holds the administrator's settings: which releases to
// refuse, and when this node applies a rollout. A Status is for people. The format is in internal/catalog, and
// internal/catalog/channel implements Channel.
//
// # Promises
//
//   - For a listed image, no release is offered that the catalog does not list or has withdrawn, or whose entry
//     has a critical field that this agent does not know.
//   - The releases of a set have the same time in a rollout, and are withdrawn together.
//   - An expired or unreachable catalog takes no release away from a node.
//
// Why containers of listed images are rendered as repository:tag@digest: kubelet under Always takes what the floating
// tag names, and a promotion must bind kubelet too. The template, or the record, tells a digest that the agent wrote
// from one that a person wrote.
package catalog

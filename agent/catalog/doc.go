// SPDX-License-Identifier: Apache-2.0

// Package catalog is what a node makes of a release catalog: the list of releases that a publisher has promoted, as one
// signed artifact in a registry.
//
// A Channel reads it, and gives a Listing that was verified. A Policy is what the administrator wants of it: what it
// refuses, and when this node applies what is rolled out. A Status is how people see it. The format is in
// internal/catalog, and internal/catalog/channel implements Channel.
//
// # Promises
//
//   - Of a listed image nothing is offered that the catalog does not list or has withdrawn, or of which it says
//     something that this agent does not know.
//   - The releases of a set have one time in a rollout, and are withdrawn together.
//   - A catalog that expired, or that does not answer, takes nothing away from a node.
package catalog

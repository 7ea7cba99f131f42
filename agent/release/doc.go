// SPDX-License-Identifier: Apache-2.0

// Package release holds the words for what a registry publishes: references, releases and
// builds, the questions that are asked about them, and the errors of a source.
//
// A Reference is a tag in a repository. A Release is one published build: its tags, its
// digest, and what the digest is (Build). A Question is what a source is asked about one
// followed image. Everything is identified by its digest and shown by its tags.
package release

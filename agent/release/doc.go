// SPDX-License-Identifier: Apache-2.0

// Package release defines references, releases and builds in a registry, the questions about them, and the errors of a
// source.
//
// A Reference is a tag in a repository. A Release is one published build: its tags, its digest, and what the digest is
// (Build). A Question asks a source about one followed image. Releases are identified by digest and shown by tags.
package release

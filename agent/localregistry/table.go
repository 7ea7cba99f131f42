// SPDX-License-Identifier: Apache-2.0

// Package localregistry decides the answers of the node's local registry, and reports its status.
//
// The local registry is a host in containerd's hosts.toml that this node serves itself. It answers the HEAD of a
// manifest from a Table, which maps floating tags to digests on this node. A table never names a digest that is
// incomplete, not pinned, waiting for approval, or denied.
package localregistry

import (
	"context"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// Position is the local registry's position in hosts.toml.
type Position string

// The positions of the local registry among the hosts of a registry.
const (
	Off      Position = ""         // hosts.toml does not name it
	Fallback Position = "fallback" // last: asked if no other host answers
	Gate     Position = "gate"     // first: asked before any other host
)

// Journal has the statistics of the local registry's answers.
type Journal struct {
	Served, Unknown, Refused int
	// Last is when each tag was last served, by REPOSITORY:TAG with the registry.
	Last map[string]time.Time
}

type (
	// Entry is a floating tag and the manifest for its HEAD.
	Entry = table.Entry
	// Table is the local registry's table, in the format of the program that answers from it.
	Table = table.Table
)

// Store stores the table for the local registry.
type Store interface {
	// Save replaces the table atomically. It does not write an equal table.
	Save(ctx context.Context, t Table) error
}

// Hosts reads the local registry's part of hosts.toml.
type Hosts interface {
	// Position returns the local registry's position among the hosts of a registry (registry.suse.com). It is Off if
	// hosts.toml cannot be read.
	Position(registry string) Position
	// Private reports whether the last request for a repository (registry.suse.com/caasp/v4/velum) needed a login.
	// known: there was a request since the start.
	Private(repository string) (private, known bool)
}

// ReferenceOf returns the tag of an entry with its whole repository, as in a pod manifest.
func ReferenceOf(e Entry) release.Reference {
	return release.Reference{Repository: e.Registry + "/" + e.Repository, Tag: e.Tag}
}

// RegistryOf returns the registry of a repository: registry.suse.com for registry.suse.com/caasp/v4/velum.
func RegistryOf(repository string) string {
	registry, _, _ := strings.Cut(repository, "/")
	return registry
}

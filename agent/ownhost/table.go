// SPDX-License-Identifier: Apache-2.0

// Package ownhost decides what the node's own host answers, and says how it stands.
//
// The own host is a host in containerd's hosts.toml that this node serves itself. It answers the
// HEAD of a manifest from a Table, which lists what floating tags name on this node. A table never
// names a digest that is not complete and pinned on the node, that waits for approval, or that is
// denied.
package ownhost

import (
	"context"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Position is where hosts.toml names the own host.
type Position string

// The positions of the own host among the hosts of a registry.
const (
	Off      Position = ""         // hosts.toml does not name it
	Fallback Position = "fallback" // last: asked where no other host answers
	Gate     Position = "gate"     // first: asked before any other host
)

// Journal is what the own host has answered.
type Journal struct {
	Served, Unknown, Refused int
	// Last is when each tag was served last, by REPOSITORY:TAG with the registry.
	Last map[string]time.Time
}

// Entry is a floating tag and the manifest that a HEAD of it names.
type Entry struct {
	Registry   string        `json:"registry"`   // registry.suse.com; the namespace in hosts.toml
	Repository string        `json:"repository"` // caasp/v4/velum
	Tag        string        `json:"tag"`        // 4.0.0-rev1
	Digest     digest.Digest `json:"digest"`
	MediaType  string        `json:"mediaType"`
	Size       int64         `json:"size"` // of the manifest, in bytes
}

// Table is what the own host answers, sorted by registry, repository and tag; each tag stands in
// it once.
type Table struct {
	Entries []Entry `json:"entries"`
}

// Store keeps the table where the own host reads it.
type Store interface {
	// Save replaces the table, whole or not at all. Equal tables are not written.
	Save(ctx context.Context, t Table) error
}

// Hosts tells what hosts.toml says of the own host.
type Hosts interface {
	// Position is where the own host stands among the hosts of a registry (registry.suse.com).
	// It is Off where hosts.toml cannot be read.
	Position(registry string) Position
	// Private reports whether a host answered the last request for a repository
	// (registry.suse.com/caasp/v4/velum) with a login. known: it answered one since the start.
	Private(repository string) (private, known bool)
}

// Reference is the tag with its whole repository, as in a pod manifest.
func (e Entry) Reference() release.Reference {
	return release.Reference{Repository: e.Registry + "/" + e.Repository, Tag: e.Tag}
}

// RegistryOf returns the registry of a repository: registry.suse.com of
// registry.suse.com/caasp/v4/velum.
func RegistryOf(repository string) string {
	registry, _, _ := strings.Cut(repository, "/")
	return registry
}

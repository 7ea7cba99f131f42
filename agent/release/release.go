// SPDX-License-Identifier: Apache-2.0

package release

import (
	"time"

	"github.com/opencontainers/go-digest"
)

// FullName returns the repository and best name of a release.
func FullName(r Release) string { return r.Repository + ":" + r.Name() }

// Key returns "repository@digest", a key of the record.
func Key(repository string, d digest.Digest) string { return repository + "@" + d.String() }

// Pin is a digest that must not be garbage-collected.
type Pin struct {
	Repository string        `json:"repository"`
	Digest     digest.Digest `json:"digest"`
}

// Resolved is the result of resolving a tag.
type Resolved struct {
	Digest   digest.Digest // of the index or manifest behind the tag
	Host     string        // the host that answered, as host[:port]
	Mirror   bool          // the host is not the repository's own
	Insecure bool          // plain http or unverified TLS
	// HostsIgnored is the hosts.toml, or its directory, that the node's runtime ignores, with the reason; empty if there
	// is none.
	HostsIgnored string
	// Skipped is the failure of a host before the one that answered; nil if there is none.
	Skipped *SourceError
}

// Build describes a digest. It never changes.
type Build struct {
	Config  digest.Digest `json:"config"`            // of the image for the node's platform; CRI's image id
	Created time.Time     `json:"created,omitzero"`  // from the image config; zero if the builder left it out
	Size    int64         `json:"size"`              // compressed bytes of config and layers
	Version string        `json:"version,omitempty"` // label org.opencontainers.image.version, for people only
	// Origin is the repository in the image's label org.opensuse.reference, without host and tag; empty if there is
	// none. It reveals a build that was tagged into another repository.
	Origin string `json:"origin,omitempty"`
	// Manifest is the digest of the image for the node's platform, if the release has the digest of an index.
	Manifest digest.Digest `json:"manifest,omitempty"`
}

// Release is one published build. Tag is the floating tag that names it (the intermediate
// tag if there is one); Long is empty if a mirror has no long tags.
type Release struct {
	Repository string        `json:"repository"`
	Tag        string        `json:"tag"`
	Long       string        `json:"long,omitempty"`
	Digest     digest.Digest `json:"digest"`
	Build
}

// Name returns the best name for people: the long tag, else the floating one.
func (r Release) Name() string {
	if r.Long != "" {
		return r.Long
	}
	return r.Tag
}

// StagedName returns the name of the staged release in the image store: the long tag, else the digest. CRI owns the
// name of a followed tag, even of a long one.
func (r Release) StagedName() string {
	if r.Long == "" || r.Long == r.Tag {
		return Key(r.Repository, r.Digest)
	}
	return r.Repository + ":" + r.Long
}

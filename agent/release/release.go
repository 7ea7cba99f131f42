// SPDX-License-Identifier: Apache-2.0

package release

import (
	"time"

	"github.com/opencontainers/go-digest"
)

// FullName is a release as a person calls it.
func FullName(r Release) string { return r.Repository + ":" + r.Name() }

func Key(repository string, d digest.Digest) string { return repository + "@" + d.String() }

// Pin is a digest of a repository that must not be garbage-collected.
type Pin struct {
	Repository string        `json:"repository"`
	Digest     digest.Digest `json:"digest"`
}

// Resolved is the answer of a source to "what does this tag name now?".
type Resolved struct {
	Digest   digest.Digest // of the index or manifest behind the tag
	Host     string        // the host that answered, as host[:port]
	Mirror   bool          // the host is not the one the repository names
	Insecure bool          // plain http or unverified TLS
}

// Build is what a digest is, learnt once: a digest never changes its content.
type Build struct {
	Config  digest.Digest `json:"config"`            // of the image for the node's platform; what CRI calls the image id
	Created time.Time     `json:"created,omitzero"`  // from the image config; zero where the builder left it out
	Size    int64         `json:"size"`              // compressed bytes of config and layers
	Version string        `json:"version,omitempty"` // label org.opencontainers.image.version, for people only
	// Origin is the repository that the image's own label names as its home
	// (org.opensuse.reference), without host and tag; empty where there is none. A
	// build that was tagged into a foreign repository by mistake gives itself away.
	Origin string `json:"origin,omitempty"`
	// Manifest is the digest of the image for the node's platform, where the
	// release's own is that of an index.
	Manifest digest.Digest `json:"manifest,omitempty"`
}

// Release is one published build of a repository. Tag is the floating tag that
// names it now (the intermediate tag where there is one); Long is empty where
// a mirror has no long tags.
type Release struct {
	Repository string        `json:"repository"`
	Tag        string        `json:"tag"`
	Long       string        `json:"long,omitempty"`
	Digest     digest.Digest `json:"digest"`
	Build
}

// Name is the best name a person has for the release: the long tag, else the
// floating one.
func (r Release) Name() string {
	if r.Long != "" {
		return r.Long
	}
	return r.Tag
}

// StagedName is the name that staging gives the release in the image store: the
// long tag, else the digest. A long tag that is itself followed is a floating
// one, whose record belongs to CRI.
func (r Release) StagedName() string {
	if r.Long == "" || r.Long == r.Tag {
		return Key(r.Repository, r.Digest)
	}
	return r.Repository + ":" + r.Long
}

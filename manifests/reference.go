// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// Placeholder stands for a tag in SUSE's templates; the package builds and
// admin-node-setup.sh used to replace it.
const Placeholder = "__TAG__"

// Reference is an image reference split at its marks and otherwise as written:
// nothing is added, no registry and no "latest".
type Reference struct {
	Name   string // repository, with the registry host[:port] if there is one
	Tag    string // "" if there is none
	Digest string // "algorithm:hex", "" if there is none
}

// SplitReference splits any text, also what is no valid reference, so that
// String gives the same text again. A colon in front of the last slash is a
// port, not a tag.
func SplitReference(s string) Reference {
	var r Reference
	r.Name = s
	if name, digest, ok := strings.Cut(s, "@"); ok && digest != "" {
		r.Name, r.Digest = name, digest
	}
	if i := strings.LastIndexByte(r.Name, ':'); i > strings.LastIndexByte(r.Name, '/') && i+1 < len(r.Name) {
		r.Name, r.Tag = r.Name[:i], r.Name[i+1:]
	}
	return r
}

func (r Reference) String() string {
	s := r.Name
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// maxName is the limit of a name with its host, which distribution/reference
// applies to the path alone.
const maxName = 255

// valid reports whether kubelet takes the reference. Digests are taken for what
// they look like, as they are not edited.
func (r Reference) valid() bool {
	name, err := reference.WithName(r.Name)
	if err == nil && r.Tag != "" {
		_, err = reference.WithTag(name, r.Tag)
	}
	if err == nil && r.Digest != "" {
		_, err = reference.WithDigest(name, digest.Digest(r.Digest))
	}
	return err == nil && len(r.Name) <= maxName
}

// hasHost reports whether the first part of the name is a registry host, by Docker's rule.
func (r Reference) hasHost() bool {
	host, _, ok := strings.Cut(r.Name, "/")
	return ok && (strings.ContainsAny(host, ".:") || host == "localhost")
}

// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// Placeholder stands for a tag in SUSE's templates; formerly the package builds and admin-node-setup.sh replaced it.
const Placeholder = "__TAG__"

// Reference is an image reference split into its parts as written: no default registry and no "latest" is added.
type Reference struct {
	Name   string // repository, with the registry host[:port] if it has one
	Tag    string // "" if absent
	Digest string // "algorithm:hex", "" if absent
}

// SplitReference splits any text, even an invalid reference, so that String returns the same text. A colon before the
// last slash starts a port, not a tag.
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

// maxName limits the name including its host; distribution/reference applies the limit to the path alone.
const maxName = 255

// valid reports whether kubelet accepts the reference. It checks digests only by their form, as they are not edited.
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

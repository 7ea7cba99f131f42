// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"regexp"
	"strings"
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

// Parts of a repository name, as in github.com/distribution/reference.
const (
	label = `[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?`
	host  = `(?:\[[0-9A-Fa-f:]+\]|` + label + `(?:\.` + label + `)*)(?::[0-9]+)?`
	part  = `[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*`
)

// The grammar of github.com/distribution/reference, which kubelet checks images
// with; the lengths are OCI's (tag) and distribution's (name). Digests are taken
// for what they look like, as they are not edited.
var (
	nameGrammar   = regexp.MustCompile(`^(?:` + host + `/)?` + part + `(?:/` + part + `)*$`)
	tagGrammar    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	digestGrammar = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,}$`)
)

const maxName = 255

func (r Reference) valid() bool {
	return len(r.Name) <= maxName && nameGrammar.MatchString(r.Name) &&
		(r.Tag == "" || tagGrammar.MatchString(r.Tag)) &&
		(r.Digest == "" || digestGrammar.MatchString(r.Digest))
}

// hasHost tells a registry host from the first part of a path, as Docker does.
func (r Reference) hasHost() bool {
	host, _, ok := strings.Cut(r.Name, "/")
	return ok && (strings.ContainsAny(host, ".:") || host == "localhost")
}

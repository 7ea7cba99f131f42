// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
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

// Rewrite maps repositories: From is a whole repository or leading path components ("sles12" matches sles12/velum, not
// sles12sp5/velum), To replaces it. Of several matches the longest From applies, regardless of order. If To lies under
// From (a=a/mirror), a repository already under To stays.
type Rewrite struct{ From, To string }

// under reports whether name is prefix or below it.
func under(name, prefix string) bool {
	return name == prefix || strings.HasPrefix(name, prefix) && name[len(prefix)] == '/'
}

// CheckRewrites rejects rewrites that are not idempotent: one matches the result of another. Render calls it first.
func CheckRewrites(rewrites []Rewrite) error {
	from := make(map[string]bool, len(rewrites))
	for i, r := range rewrites {
		for _, side := range []string{r.From, r.To} {
			if !validPrefix(side) {
				return fmt.Errorf("rewrite %s=%s: %q is no repository or leading part of one", r.From, r.To, side)
			}
		}
		if from[r.From] {
			return fmt.Errorf("rewrite %s=%s: %s is rewritten twice", r.From, r.To, r.From)
		}
		from[r.From] = true
		for j, other := range rewrites {
			if i != j && (under(r.To, other.From) || under(other.From, r.To)) {
				return fmt.Errorf("rewrite %s=%s: its result is rewritten again by %s=%s",
					r.From, r.To, other.From, other.To)
			}
		}
	}
	return nil
}

// validPrefix also accepts a registry host alone.
func validPrefix(s string) bool { return Reference{Name: s + "/x"}.valid() }

// Rewritten returns the repository that replaces name.
func Rewritten(name string, rewrites []Rewrite) string {
	var best Rewrite
	for _, r := range rewrites {
		if under(name, r.From) && len(r.From) > len(best.From) {
			best = r
		}
	}
	if best.From == "" {
		return name
	}
	if under(best.To, best.From) {
		if under(name, best.To) {
			return name
		}
		return best.To + name[len(best.From):]
	}
	// Repeat only if From lies under its To: a/b=a maps a/b/b/x to a/b/x, which matches again.
	for under(name, best.From) {
		name = best.To + name[len(best.From):]
	}
	return name
}

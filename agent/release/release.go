// SPDX-License-Identifier: Apache-2.0

// Package release defines references, releases and builds in a registry, the questions about them, and the errors of a
// source.
//
// A Reference is a tag in a repository. A Release is one published build: its tags, its digest, and what the digest is
// (Build). A Question asks a source about one followed image. Releases are identified by digest and shown by tags.
package release

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/tags"
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
func (r Release) Name() string { return cmp.Or(r.Long, r.Tag) }

// StagedName returns the name of the staged release in the image store: the long tag, else the digest. CRI owns the
// name of a followed tag, even of a long one.
func (r Release) StagedName() string {
	if r.Long == "" || r.Long == r.Tag {
		return Key(r.Repository, r.Digest)
	}
	return r.Repository + ":" + r.Long
}

// Floating returns the floating tag to follow for a tag: the intermediate tag of a long one.
func Floating(tag string, s tags.Scheme) string {
	if t, err := s.Parse(tag); err == nil && t.Form() == tags.Long {
		if im, ok := t.Intermediate(); ok {
			return im.String()
		}
	}
	return tag
}

// Reference is a tag in a repository. Repository is normalised as in CRI: "sles12/velum" is
// "docker.io/sles12/velum".
type Reference struct {
	Repository string `json:"repository"`
	Tag        string `json:"tag"`
}

// String returns the reference as in a pod manifest: repository:tag.
func (r Reference) String() string { return r.Repository + ":" + r.Tag }

// Tagged returns the reference with the tag that kubelet pulls if none is written.
func (r Reference) Tagged() Reference {
	r.Tag = cmp.Or(r.Tag, "latest")
	return r
}

// ParseReference parses "repository:tag". A missing tag stays empty and does not become "latest".
func ParseReference(text string) (Reference, error) {
	if r, is := parseUsual(text); is {
		return r, nil
	}
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return Reference{}, outside.Error(fmt.Errorf("reference %q: %w", outside.Text(text), err))
	}
	r := Reference{Repository: named.Name()}
	if tagged, ok := named.(reference.Tagged); ok {
		r.Tag = tagged.Tag()
	}
	return r, nil
}

// NormalizeRepository returns the repository name of CRI and containerd.
func NormalizeRepository(name string) (string, error) {
	r, err := ParseReference(name)
	if err != nil {
		return "", err
	}
	if r.Tag != "" {
		return "", fmt.Errorf("repository %q: has a tag", name)
	}
	return r.Repository, nil
}

// IsPlaceholder reports whether a tag of a template is a placeholder.
func IsPlaceholder(tag string) bool {
	return tag == "__TAG__" || strings.HasPrefix(tag, "%%")
}

// usual matches HOST[:PORT]/PATH[:TAG] without upper case in the name, and without a digest.
var usual = lazyregexp.New(`^([a-z0-9]+(?:(?:\.|-+)[a-z0-9]+)*)(?::[0-9]+)?` +
	`/[a-z0-9]+(?:(?:[._/]|-+)[a-z0-9]+)*(?::([A-Za-z0-9_][A-Za-z0-9_.-]*))?$`)

// maxUsual is below the limit of distribution/reference for a name.
const maxUsual = 128

// parseUsual parses a reference as pod manifests usually have it, with a dot in the host. Other texts are not usual,
// valid or not. It saves the regular expressions of distribution/reference, which take a quarter of a plan, and accepts
// only what they accept.
func parseUsual(text string) (Reference, bool) {
	if len(text) > maxUsual {
		return Reference{}, false
	}
	m := usual().FindStringSubmatch(text)
	if m == nil || !strings.Contains(m[1], ".") || strings.HasSuffix(m[1], "docker.io") {
		return Reference{}, false
	}
	return Reference{Repository: strings.TrimSuffix(text, ":"+m[2]), Tag: m[2]}, true
}

// Question is the source's input for one followed image.
type Question struct {
	Repository string
	// Tag is the higher tag of template and pod manifest. Empty: a placeholder without a
	// value, which follows the newest tag.
	Tag string
	// Convert: the agent renders the pod manifest and converts a short tag to its intermediate tag. Otherwise the tag
	// is followed as written.
	Convert bool
	// Kubeadm: the image belongs to a control plane of kubeadm.
	Kubeadm bool
}

// String returns the text for people and the key in the record.
func (q Question) String() string {
	s := q.Repository
	if q.Tag != "" {
		s += ":" + q.Tag
	}
	if q.Kubeadm {
		s += KubeadmSuffix
	}
	if !q.Convert {
		s += AsWrittenSuffix
	}
	return s
}

// KubeadmSuffix marks the questions of a control plane of kubeadm.
const KubeadmSuffix = " (kubeadm)"

// AsWrittenSuffix marks the questions of pod manifests that the agent does not render.
const AsWrittenSuffix = " (as written)"

type askingKey struct{}

// WithAsking returns a context whose source calls asking before it sends a request, but not if it must wait for its
// host.
func WithAsking(ctx context.Context, asking func()) context.Context {
	return context.WithValue(ctx, askingKey{}, asking)
}

// Asking reports a request to the function of WithAsking.
func Asking(ctx context.Context) {
	if asking, ok := ctx.Value(askingKey{}).(func()); ok {
		asking()
	}
}

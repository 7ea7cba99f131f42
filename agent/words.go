// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Reference is a floating or a long tag in a repository. Repository is
// normalised as CRI normalises it: "sles12/velum" is
// "docker.io/sles12/velum". The zero value names nothing.
type Reference struct {
	Repository string `json:"repository"`
	Tag        string `json:"tag"`
}

// String is the reference as it stands in a pod manifest: repository:tag.
func (r Reference) String() string { return r.Repository + ":" + r.Tag }

// ParseReference reads "repository:tag"; the tag may be missing and then stays
// empty, for an agent never invents "latest".
func ParseReference(text string) (Reference, error) {
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

// NormalizeRepository gives the repository name that CRI and containerd use.
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
		return releaseKey(r.Repository, r.Digest)
	}
	return r.Repository + ":" + r.Long
}

// Container is a container of a static pod as CRI shows it.
type Container struct {
	ID        string // CRI's id, for Stop
	Sandbox   string // CRI's pod sandbox id
	Pod       string // pod name with the node's suffix: velum-node1
	Namespace string
	Name      string // container name in the pod manifest
	Running   bool   // false: created or exited, kept by kubelet for its log
	StartedAt time.Time
	// FinishedAt, ExitCode, Reason and Message are of one that has ended: Reason is a
	// word of the runtime's (Completed, Error, OOMKilled, StartError, Unknown).
	FinishedAt time.Time
	ExitCode   int32
	Reason     string
	Message    string
	Restarts   uint32          // the attempt number: 0 is the first start
	Image      digest.Digest   // config digest of the image that runs
	Digests    []digest.Digest // digests of index or manifest that CRI knows for that image
}

// HeldImage is one image record of containerd.
type HeldImage struct {
	Name   string        // repository:tag, repository@digest, or one of our pins
	Digest digest.Digest // the record's target
	Pin    bool          // a pin record of ours
	Staged bool          // the name that staging gave; somebody else's pull of that name makes it theirs
	// Repository is what a pin or a staged name is for; empty for others.
	Repository string
	// Complete: all blobs for the node's platform are there and unpacked. Only
	// set for pins: it is what "staged" means.
	Complete bool
	Config   digest.Digest // of the node's platform; empty where the content is not there
}

// Progress is how far long work has come. Total is zero while it is unknown.
type Progress struct {
	Reference string `json:"reference"`
	// Phase is asking or confirming; of an apply changing, of a rollback returning, before
	// it begins, with Edits; then waiting or proving; of a pull, of which several may run
	// side by side, resolving, downloading or unpacking, and done, failed or interrupted at last.
	Phase string `json:"phase"`
	Done  int64  `json:"done,omitempty"`  // bytes
	Total int64  `json:"total,omitempty"` // bytes
	Edits []Edit `json:"edits,omitempty"` // what is about to change of the pod manifest Reference
}

// Pulling takes a report into the list of pulls that are under way, sorted by
// reference, and returns the new list.
func Pulling(pulls []Progress, p Progress) []Progress {
	var out []Progress
	for _, other := range pulls {
		if other.Reference != p.Reference {
			out = append(out, other)
		}
	}
	switch p.Phase {
	case "resolving", "downloading", "unpacking":
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Progress) int { return strings.Compare(a.Reference, b.Reference) })
	return out
}

// Hold is a named reason not to act now.
type Hold struct {
	Name   string `json:"name"`   // stable word: "update-in-progress", "withheld", "unmanaged" ...
	Reason string `json:"reason"` // for people
	// Until is when it ends by itself, as Reason says; zero: nobody knows.
	Until time.Time `json:"until,omitzero"`
	// Image is the repository that HoldAsked, HoldWithheld and HoldRefused are about; "*": all of them.
	Image string `json:"image,omitempty"`
	// By is who wants HoldAsked: ByPerson or ByConfiguration.
	By string `json:"by,omitempty"`
	// Grain is the grain of HoldBusy; empty: the grains could not be read.
	Grain string `json:"grain,omitempty"`
}

// Who can want that nothing is applied.
const (
	ByPerson        = "person"
	ByConfiguration = "configuration"
)

// IsPlaceholder reports whether a tag in a template waits for its value.
func IsPlaceholder(tag string) bool {
	return tag == "__TAG__" || strings.HasPrefix(tag, "%%")
}

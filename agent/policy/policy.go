// SPDX-License-Identifier: Apache-2.0

// Package policy holds the administrator's settings as values: the rules of each repository, why a rule refuses a
// release (Refusal), how much of the disk stays free (Reserve), and when a source is asked again (Backoff, NextSlot).
// It keeps no state and no cache, so several goroutines may use one Policy.
//
// Why slots: a thousand nodes that poll at once overload a mirror, random delays change at each restart, and doubling
// back-off sends seven requests in an interval after an outage. So a hash of the machine id places the node in the
// interval, and a failed source is asked again after 5 minutes and after 1 hour (times 0.5 to 1.5), then in the slot.
// Retry-After is never undercut.
package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// Policy configures offers and applies.
type Policy struct {
	// PullPolicy is written into rendered templates: Always or IfNotPresent.
	PullPolicy string
	// ManagedPullPolicy is written into pod manifests without a template; empty keeps their own.
	ManagedPullPolicy string
	// Rewrites replace repository prefixes while rendering.
	Rewrites []manifests.Rewrite
	// Values are tags for __TAG__, by repository as the template writes it.
	Values map[string]string
	// Manage are pod manifests without a template that the agent may change, by file name. It may always change those
	// with a template.
	Manage map[string]bool
	// Owned maps the pod manifests that the Kubernetes distribution writes, by file name, to the distribution's name:
	// the agent does not change them, whatever Manage says.
	Owned map[string]string
	// NodeName is the node's name in Kubernetes, the suffix of static pods' names in CRI; if it is empty, the longest
	// matching pod name decides.
	NodeName string
	// Images are followed although no pod manifest names them.
	Images []release.Reference
	// Rule returns the rule of a repository, whose name is normalised as in CRI. It must be pure.
	Rule func(repository string) Rule
	// ListEvery is the shortest time between two requests for a tag list.
	ListEvery time.Duration
	// ConfirmAfter is the time between the two readings of a digest that is new to the node; 0: one reading.
	ConfirmAfter time.Duration
	// StageDelay is how long this node waits before it pulls a new offer, unless a person requests it.
	StageDelay time.Duration
	// MaxParallelStages is how many releases are staged at a time; below 1: 1.
	MaxParallelStages int
	// Reserve is the space to keep free on the image filesystem.
	Reserve Reserve
	Prune   Prune
	Catalog catalog.Policy // settings for the catalog, if the node has one
	// ServePrivate: the local registry also serves images that need a login.
	ServePrivate bool
	// Auto applies staged releases without an approval, while Window is open.
	Auto bool
	// Window reports whether automatic applies may begin, and when that changes; nil: always. It must be pure.
	Window func(now time.Time) (open bool, change time.Time)
	// MinSeverity is the least severity of what Auto applies; empty: any, also none.
	MinSeverity format.Severity
	// Lock is the fleet lock; zero: none.
	Lock fleet.Lock
	// Freeze is when applies are allowed again; zero: now.
	Freeze time.Time
	// Order are shell patterns (path.Match) of the pod manifests to apply first.
	Order []string
	// Forgets is KubeletForgets, except on a node without a kubelet.
	Forgets time.Duration
	// ApplyTimeout limits the wait until a pod runs the applied digest; Settle is how long it must then run.
	ApplyTimeout, Settle time.Duration
}

// Prune says which old releases to keep.
type Prune struct {
	// Keep is the number of rollback targets to keep.
	Keep int
	// Unstaged: prune also old releases of followed repositories that the agent did not
	// stage.
	Unstaged bool
}

// Rule is the policy of one repository.
type Rule struct {
	Updates tags.Change // the largest change that may be offered
	Scheme  tags.Scheme // of its tags
	// Follow is the floating tag to follow; empty: the template's.
	Follow string
	// Allow and Deny are shell patterns (path.Match) for tags; Deny may also have digests. If Allow is not empty, only
	// matching tags are offered.
	Allow, Deny []string
	// Max is the highest release that may be offered (tags.Tag.Exceeds); zero: any.
	Max        tags.Tag
	Signatures Signatures
	// Older: also follow a tag that was moved to an older build.
	Older bool
	// Hold is why no release of the repository is applied; empty: no hold. It ends at HoldUntil; zero: never.
	Hold      string
	HoldUntil time.Time

	kubeadm bool // the image belongs to a control plane of kubeadm, see RuleForQuestion
}

// RuleFor returns a repository's rule.
func (p Policy) RuleFor(repository string) Rule {
	if p.Rule == nil {
		return Rule{Updates: tags.Revision}
	}
	return p.Rule(repository)
}

// RuleForQuestion returns the rule for the answers to a question.
func (p Policy) RuleForQuestion(q release.Question) Rule {
	r := p.RuleFor(q.Repository)
	r.kubeadm = q.Kubeadm
	return r
}

// Value returns the tag for a placeholder, by the repository as the template writes it, as rewritten, or as CRI
// normalises it.
func (p Policy) Value(written, rewritten, normalised string) string {
	return cmp.Or(p.Values[written], p.Values[rewritten], p.Values[normalised])
}

// Fingerprint identifies the part of a rule that affects requests to a source.
func (r Rule) Fingerprint() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %q %q %q %s", r.Updates, r.Scheme, r.Follow, r.Allow, r.Deny, r.Max))
	return hex.EncodeToString(sum[:8])
}

// RefusesUpgrade refuses more than a patch for a control plane of kubeadm, unless a pattern of `allow` matches one of
// its names: a new tag does not replace `kubeadm upgrade`.
func (r Rule) RefusesUpgrade(change tags.Change, names ...string) (Refusal, bool) {
	allowed := func(name string) bool { return matching(r.Allow, name) != "" }
	if !r.kubeadm || change <= tags.Patch || slices.ContainsFunc(names, allowed) {
		return Refusal{}, false
	}
	return Refusal{
		Tag: names[0], Rule: RuleKubeadm, Key: "allow",
		Reason: change.String() + " of a control plane that kubeadm manages: use kubeadm upgrade, or allow: [" + names[0] +
			"]",
	}, true
}

// IsWindowOpen reports whether automatic applies may begin, and when that changes.
func (p Policy) IsWindowOpen(now time.Time) (open bool, change time.Time) {
	if p.Window == nil {
		return true, time.Time{}
	}
	return p.Window(now)
}

// Signatures says whether signatures are verified, and the consequence of an invalid one.
type Signatures string

// The policies for signatures. The empty one is SignaturesOff.
const (
	SignaturesOff     Signatures = "off"     // they are not verified
	SignaturesWarn    Signatures = "warn"    // a release without a valid signature is staged with a warning
	SignaturesRequire Signatures = "require" // a release without a valid signature is not staged
)

// Reserve is the space to keep free on the image filesystem: the largest of the three.
type Reserve struct {
	Bytes   int64
	Percent int // of the filesystem
	// HighMark is the usage in percent at which kubelet begins to remove images; 0: unknown.
	HighMark int
}

// Keep returns the bytes to keep free on a filesystem.
func (r Reserve) Keep(fs Filesystem) int64 {
	free := max(r.Bytes, fs.Size/100*int64(r.Percent))
	if r.HighMark > 0 {
		free = max(free, fs.Size/100*int64(100-r.HighMark)+1)
	}
	return free
}

// ShortageError says that a pull waits for disk space.
type ShortageError struct {
	SpaceNeeded
	Filesystem
	Keep int64 `json:"keep"` // bytes to keep free
}

// Error has all figures, so that a reader knows how much space to free.
func (e *ShortageError) Error() string {
	return fmt.Sprintf("needs %s to pull and %s to unpack with %s of %s kept free, but only %s are free on %s",
		Bytes(e.Compressed), Bytes(e.Unpacked), Bytes(e.Keep), Bytes(e.Size), Bytes(e.Free), e.Path)
}

// Unwrap returns ErrHeld.
func (e *ShortageError) Unwrap() error { return release.ErrHeld }

// Bytes formats a number of bytes for people.
func Bytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}

// Shortage reports whether a filesystem has too little space for a pull. others are the bytes
// that other pulls still need.
func (r Reserve) Shortage(fs Filesystem, n SpaceNeeded, others int64) (*ShortageError, bool) {
	keep := r.Keep(fs)
	if fs.Size == 0 || n.Compressed+n.Unpacked+others+keep <= fs.Free {
		return nil, false
	}
	return &ShortageError{n, fs, keep}, true
}

// SpaceNeeded is the number of bytes that a pull adds. Unpacked is an estimate, because image manifests do not have it.
type SpaceNeeded struct {
	Compressed int64 `json:"compressed"`
	Unpacked   int64 `json:"unpacked"`
}

// Filesystem is the image filesystem, with its size in bytes.
type Filesystem struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	Free int64  `json:"free"` // as kubelet counts it: without the space reserved for root
}

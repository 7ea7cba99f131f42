// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Catalog is what the administrator wants of a catalog.
type Catalog struct {
	// MachineID decides the node's place in a rollout.
	MachineID string
	// OnlyListed refuses images that the catalog does not list; else their tags are followed.
	OnlyListed bool
	// IgnoreExpiry applies automatically although the catalog has expired.
	IgnoreExpiry bool
	// AllowLower offers a lower release where the running one was withdrawn.
	AllowLower bool
}

// IsExpired reports whether a catalog should have been published again by now.
func IsExpired(l release.Listing, now time.Time) bool {
	return l.Version > 0 && !l.Expires.IsZero() && !now.Before(l.Expires)
}

// RefusesListed refuses a release that the catalog withholds, or does not list.
func (c Catalog) RefusesListed(l release.Listing, rel release.Release) (Refusal, bool) {
	switch {
	case l.Catalog == "":
		return Refusal{}, false
	case l.Version == 0:
		return Refusal{Tag: rel.Name(), Rule: RuleUnlisted, Reason: l.Catalog + " was not read yet"}, true
	}
	if !l.IsListed(rel.Repository) {
		return Refusal{
			Tag: rel.Name(), Rule: RuleUnlisted, Key: "catalog.unlisted: ask",
			Reason: fmt.Sprintf("%s does not list %s", l.Catalog, rel.Repository),
		}, c.OnlyListed
	}
	is, listed := l.Find(rel.Repository, rel.Digest)
	switch {
	case !listed:
		return Refusal{Tag: rel.Name(), Rule: RuleUnlisted, Reason: l.Catalog + " does not list it"}, true
	case is.Withdrawn != nil:
		return Refusal{Tag: rel.Name(), Rule: RuleWithdrawn, Reason: withdrawnReason(*is.Withdrawn)}, true
	case is.UnknownCritical != "":
		return Refusal{
			Tag: rel.Name(), Rule: RuleCritical,
			Reason: fmt.Sprintf("%s needs an agent that knows %q", l.Catalog, is.UnknownCritical),
		}, true
	}
	return Refusal{}, false
}

// AllowsLower reports whether a lower release may replace what runs, because it was withdrawn.
func (c Catalog) AllowsLower(l release.Listing, was release.Release) bool {
	is, listed := l.Find(was.Repository, was.Digest)
	return listed && is.Withdrawn != nil && c.AllowLower
}

func withdrawnReason(w release.Withdrawal) string {
	text := "withdrawn: " + w.Reason
	if w.To != "" {
		text += " (instead: " + w.To + ")"
	}
	return text
}

// RolloutTime returns when this node applies a release automatically: a time of the rollout that follows from the
// machine id and the digest, so that another node is first each time. The releases of a set have one time: their set
// stands for the digest.
func (c Catalog) RolloutTime(r release.Listed) time.Time {
	if r.Rollout.Spread <= 0 {
		return r.Rollout.From
	}
	what := r.Digest.String()
	if r.Set != "" {
		what = "set " + r.Set
	}
	sum := sha256.Sum256([]byte("image-update-agent rollout " + c.MachineID + " " + what))
	return r.Rollout.From.Add(time.Duration(binary.BigEndian.Uint64(sum[:8]) % uint64(r.Rollout.Spread)))
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Policy holds the administrator's settings for a catalog.
type Policy struct {
	// MachineID determines the node's time in a rollout.
	MachineID string
	// OnlyListed refuses images that the catalog does not list; without it such images follow their tags.
	OnlyListed bool
	// IgnoreExpiry allows automatic applies although the catalog has expired.
	IgnoreExpiry bool
	// AllowLower offers a lower release if the running one was withdrawn.
	AllowLower bool
}

// The rules by which a catalog refuses a release, in addition to those of package policy. They are part of the machine
// interface.
const (
	RuleUnlisted  = "unlisted"  // the catalog does not list it
	RuleWithdrawn = "withdrawn" // the catalog has withdrawn it
	RuleCritical  = "critical"  // its entry has a critical field that this agent does not know
)

// Refuses returns the rule by which the catalog refuses a release, and the reason; rule is "" if it does not. key is
// the setting that would allow the release; "" if there is none.
func (p Policy) Refuses(l Listing, rel release.Release) (rule, reason, key string) {
	is, listed := l.Find(rel.Repository, rel.Digest)
	switch {
	case l.Catalog == "":
		return "", "", ""
	case l.Version == 0:
		return RuleUnlisted, l.Catalog + " was not read yet", ""
	case !l.IsListed(rel.Repository) && p.OnlyListed:
		return RuleUnlisted, l.Catalog + " does not list " + rel.Repository, "catalog.unlisted: ask"
	case !l.IsListed(rel.Repository):
		return "", "", ""
	case !listed:
		return RuleUnlisted, l.Catalog + " does not list it", ""
	case is.Withdrawn != nil:
		return RuleWithdrawn, "withdrawn: " + is.Withdrawn.String(), ""
	case is.UnknownCritical != "":
		return RuleCritical, fmt.Sprintf("%s needs a newer agent, which knows %q", l.Catalog, is.UnknownCritical), ""
	}
	return "", "", ""
}

// AllowsLower reports whether a lower release may replace the running one, because that was withdrawn.
func (p Policy) AllowsLower(l Listing, was release.Release) bool {
	is, listed := l.Find(was.Repository, was.Digest)
	return listed && is.Withdrawn != nil && p.AllowLower
}

// RolloutTime returns when this node applies a release automatically: a time within the rollout derived from the
// machine id and the digest, so that each rollout starts with other nodes. The releases of a set have the same time,
// derived from the set instead of the digest.
func (p Policy) RolloutTime(r Listed) time.Time {
	if r.Rollout.Spread <= 0 {
		return r.Rollout.From
	}
	what := r.Digest.String()
	if r.Set != "" {
		what = "set " + r.Set
	}
	sum := sha256.Sum256([]byte("image-update-agent rollout " + p.MachineID + " " + what))
	place, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), uint64(r.Rollout.Spread))
	return r.Rollout.From.Add(time.Duration(place))
}

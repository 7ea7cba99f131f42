// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Policy is what the administrator wants of a catalog.
type Policy struct {
	// MachineID decides the node's place in a rollout.
	MachineID string
	// OnlyListed refuses images that the catalog does not list; else their tags are followed.
	OnlyListed bool
	// IgnoreExpiry applies automatically although the catalog has expired.
	IgnoreExpiry bool
	// AllowLower offers a lower release where the running one was withdrawn.
	AllowLower bool
}

// The rules by which a catalog refuses a release, beside those of package policy. They are part of the machine
// interface.
const (
	RuleUnlisted  = "unlisted"  // the catalog does not list it
	RuleWithdrawn = "withdrawn" // the catalog has withdrawn it
	RuleCritical  = "critical"  // the catalog says something about it that this agent does not know
)

// Refuses returns by which rule the catalog withholds a release, and why; rule "": it does not. key is the setting that
// would allow it; "": none would.
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
		return RuleCritical, fmt.Sprintf("%s needs an agent that knows %q", l.Catalog, is.UnknownCritical), ""
	}
	return "", "", ""
}

// AllowsLower reports whether a lower release may replace what runs, because it was withdrawn.
func (p Policy) AllowsLower(l Listing, was release.Release) bool {
	is, listed := l.Find(was.Repository, was.Digest)
	return listed && is.Withdrawn != nil && p.AllowLower
}

// RolloutTime returns when this node applies a release automatically: a time of the rollout that follows from the
// machine id and the digest, so that another node is first each time. The releases of a set have one time: their set
// stands for the digest.
func (p Policy) RolloutTime(r Listed) time.Time {
	if r.Rollout.Spread <= 0 {
		return r.Rollout.From
	}
	what := r.Digest.String()
	if r.Set != "" {
		what = "set " + r.Set
	}
	sum := sha256.Sum256([]byte("image-update-agent rollout " + p.MachineID + " " + what))
	return r.Rollout.From.Add(time.Duration(binary.BigEndian.Uint64(sum[:8]) % uint64(r.Rollout.Spread)))
}

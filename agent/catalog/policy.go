// SPDX-License-Identifier: Apache-2.0

// Package catalog applies a release catalog to a node. A release catalog is a publisher's list of promoted releases,
// one signed artifact in a registry.
//
// A Channel reads it and returns a verified Listing. A Policy holds the administrator's settings: which releases to
// refuse, and when this node applies a rollout. A Status is for people. The format is in internal/catalog, and
// internal/catalog/channel implements Channel.
//
// # Promises
//
//   - For a listed image, no release is offered that the catalog does not list or has withdrawn, or whose entry
//     has a critical field that this agent does not know.
//   - The releases of a set have the same time in a rollout, and are withdrawn together.
//   - An expired or unreachable catalog takes no release away from a node.
//
// Why containers of listed images are rendered as repository:tag@digest: kubelet under Always takes what the floating
// tag names, and a promotion must bind kubelet too. The template, or the record, tells a digest that the agent wrote
// from one that a person wrote.
package catalog

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
)

// Status is the node's last verified catalog, and why there is no newer one.
type Status struct {
	Catalog string `json:"catalog"` // repository:channel
	// Version: 0: none has been read.
	Version uint64        `json:"version" metric:"catalog_version" help:"Version of the release catalog that was verified last; 0 before the first, absent without a catalog."`
	Digest  digest.Digest `json:"digest"`
	Created *time.Time    `json:"created" metric:"catalog_created_timestamp_seconds" help:"When the verified version of the release catalog was published."`
	// Expires: null: never.
	Expires *time.Time `json:"expires" metric:"catalog_expires_timestamp_seconds" help:"When the verified version of the release catalog expires; absent if it never does."`
	Expired bool       `json:"expired"`
	Images  int        `json:"images"` // listed images of this node
	// LastSuccess is when its host confirmed the version, or served a newer one.
	LastSuccess *time.Time    `json:"lastSuccess"`
	Failures    int           `json:"failures"` // in a row
	Error       string        `json:"error"`
	Cause       release.Cause `json:"cause"`
	RetryAt     *time.Time    `json:"retryAt"`
}

// Status returns the status of a listing, without the source's errors; nil if the node has no catalog.
func (l Listing) Status(now time.Time) *Status {
	if l.Catalog == "" {
		return nil
	}
	return &Status{
		Catalog: l.Catalog, Version: l.Version, Digest: l.Digest, Created: when(l.Created), Expires: when(l.Expires),
		Expired: l.IsExpired(now), Images: len(l.Images),
	}
}

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

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
		return RuleWithdrawn, "withdrawn: " + WithdrawalOf(is.Withdrawn).String(), ""
	case is.UnknownCritical() != "":
		return RuleCritical, fmt.Sprintf("%s needs a newer agent, which knows %q", l.Catalog, is.UnknownCritical()), ""
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
func (p Policy) RolloutTime(r format.Release) time.Time {
	switch {
	case r.Rollout == nil:
		return time.Time{}
	case r.Rollout.Hours <= 0:
		return r.Rollout.From
	}
	what := r.Digest.String()
	if r.Set != "" {
		what = "set " + r.Set
	}
	sum := sha256.Sum256([]byte("image-update-agent rollout " + p.MachineID + " " + what))
	place, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), uint64(r.Rollout.Span()))
	return r.Rollout.From.Add(time.Duration(place))
}

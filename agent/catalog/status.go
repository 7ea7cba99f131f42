// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Status is the node's last verified catalog, and why there is no newer one.
type Status struct {
	Catalog string `json:"catalog"` // repository:channel
	// Version: 0: none was read yet.
	Version uint64        `json:"version" metric:"catalog_version" help:"The version of the release catalog that was verified last; 0 before the first."`
	Digest  digest.Digest `json:"digest"`
	Created *time.Time    `json:"created" metric:"catalog_created_timestamp_seconds" help:"When that version was published."`
	// Expires: null: never.
	Expires *time.Time `json:"expires" metric:"catalog_expires_timestamp_seconds" help:"When that version expires; not there without an end."`
	Expired bool       `json:"expired"`
	Images  int        `json:"images"` // of this node that it lists
	// LastSuccess is when its host confirmed the version, or served a newer one.
	LastSuccess *time.Time    `json:"lastSuccess"`
	Failures    int           `json:"failures"` // in a row
	Error       string        `json:"error"`
	Cause       release.Cause `json:"cause"`
	RetryAt     *time.Time    `json:"retryAt"`
}

// Status returns the status of a listing, without how its source answered; nil: the node has no catalog.
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

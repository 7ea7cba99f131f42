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

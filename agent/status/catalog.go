// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// CatalogStatus is the node's last verified catalog, and why there is no newer one.
type CatalogStatus struct {
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

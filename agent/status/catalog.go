// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// CatalogStatus is the node's last verified catalog, and why there is no newer one.
type CatalogStatus struct {
	Catalog string        `json:"catalog"` // repository:channel
	Version uint64        `json:"version"` // 0: none was read yet
	Digest  digest.Digest `json:"digest"`
	Created *time.Time    `json:"created"`
	Expires *time.Time    `json:"expires"` // null: never
	Expired bool          `json:"expired"`
	Images  int           `json:"images"` // of this node that it lists
	// LastSuccess is when its host confirmed the version, or served a newer one.
	LastSuccess *time.Time    `json:"lastSuccess"`
	Failures    int           `json:"failures"` // in a row
	Error       string        `json:"error"`
	Cause       release.Cause `json:"cause"`
	RetryAt     *time.Time    `json:"retryAt"`
}

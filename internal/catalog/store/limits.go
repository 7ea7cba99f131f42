// SPDX-License-Identifier: Apache-2.0

package store

import (
	"time"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Sizes for registries that never end; a node has the same for manifests and tag lists.
const (
	maxManifest = catalog.MaxManifest
	maxBlob     = 8 << 20  // a page, a list of ops, the config of an image
	maxTagPage  = 32 << 20 // Google's registries send all tags at once, with megabytes of manifests
	maxTagList  = 64 << 20 // bytes of the names of all pages
	maxTags     = 500_000  // a catalog has three for each version, until it is pruned
	maxPages    = 1000
	pageSize    = 1000
	maxAnswer   = maxTagPage // of anything
	maxSent     = 16 << 20   // bytes of a request
	maxHeader   = 64 << 10
	maxRedirect = 5
)

// Times for registries that are slow or silent.
const (
	dialTimeout  = 10 * time.Second
	tlsTimeout   = 10 * time.Second
	stallTimeout = 30 * time.Second // no byte in either direction
	sendTimeout  = 5 * time.Minute  // one request and its answer
	listTimeout  = 5 * time.Minute  // all pages of a tag list
)

// Repeats of one request.
const (
	// MaxAttempts is how often a request is sent at most, within about 12 seconds.
	MaxAttempts = 7
	firstWait   = 100 * time.Millisecond
	longestWait = 5 * time.Second
	// repeatTime is how long after the first attempt the last one begins at most. A registry that
	// wants a longer wait has its answer reported.
	repeatTime = 45 * time.Second
)

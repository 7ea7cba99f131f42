// SPDX-License-Identifier: Apache-2.0

package registry

import "time"

// listTimeout limits all pages of a tag list: three seconds for each that maxTags requires.
const listTimeout = 5 * time.Minute

// Size limits for endless answers. The manifest's is the distribution specification's: "MUST support at least 4
// megabytes", which is also containerd's limit.
const (
	maxManifest = 4 << 20
	maxTagPage  = 32 << 20 // Google's registries send all tags at once, with megabytes of manifests; only names are kept
	maxPages    = 200
	maxTags     = 100_000  // of a repository; docker.io/library/node has 9,000
	maxTagList  = 64 << 20 // bytes of all its pages
	pageSize    = 1000
)

// SPDX-License-Identifier: Apache-2.0

package registry

import "time"

// Times for slow hosts. containerd waits 30 s for a dial and without end for a
// body; a poll has other hosts to ask and no reason to wait so long.
const (
	dialTimeout     = 10 * time.Second // a shorter dial_timeout of hosts.toml wins
	tlsTimeout      = 10 * time.Second
	headerTimeout   = 30 * time.Second
	exchangeTimeout = 60 * time.Second // one request for metadata with its token and body
	listTimeout     = 5 * time.Minute  // all pages of a tag list: three seconds for each that maxTags wants
	stallTimeout    = 60 * time.Second // no byte of a layer; a slow link brings some
)

// Sizes for hosts that never end. The manifest's is the distribution
// specification's: "MUST support at least 4 megabytes", which is what
// containerd reads at most.
const (
	maxManifest  = 4 << 20
	maxTagPage   = 1 << 20
	maxPages     = 200
	maxTags      = 100_000  // of a repository; docker.io/library/node has 9,000
	maxTagList   = 16 << 20 // bytes of all its pages: that many tags of the greatest length, and JSON around them
	maxToken     = 64 << 10
	maxHeader    = 64 << 10
	pageSize     = 1000
	maxRedirects = 5 // containerd follows ten
)

// maxRetryAfter is how long a host may silence the agent; more is cut, so that
// one bad answer cannot end all polling.
const maxRetryAfter = 24 * time.Hour

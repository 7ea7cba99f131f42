// SPDX-License-Identifier: Apache-2.0

package transport

import "time"

// Times for slow hosts. containerd waits 30 s for a dial and without end for a
// body; a poll has other hosts to ask and no reason to wait so long.
const (
	dialTimeout   = 10 * time.Second // a shorter dial_timeout of hosts.toml wins
	tlsTimeout    = 10 * time.Second
	headerTimeout = 30 * time.Second
	askTimeout    = 60 * time.Second // one question with its token and body
	stallTimeout  = 60 * time.Second // no byte of a layer; a slow link brings some
)

// Sizes for hosts that never end.
const (
	maxToken     = 64 << 10
	maxHeader    = 64 << 10
	maxRedirects = 5 // containerd follows ten
	// maxChallenges is how many 401 of different hosts one question answers, as containerd.
	maxChallenges = 4
)

// maxRetryAfter is how long a host may silence the agent; more is cut, so that
// one bad answer cannot end all polling.
const maxRetryAfter = 24 * time.Hour

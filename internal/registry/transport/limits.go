// SPDX-License-Identifier: Apache-2.0

package transport

import "time"

// Time limits for slow hosts. containerd waits 30 s for a dial and forever for a body; a poll has other hosts to ask
// and need not wait that long. It waits for the header of an answer as long as containerd's transport, which is kept.
const (
	dialTimeout    = 10 * time.Second // a shorter dial_timeout of hosts.toml takes precedence
	tlsTimeout     = 10 * time.Second
	patientTimeout = 50 * time.Second // for a header, where containerd waits without end; shorter than askTimeout
	askTimeout     = 60 * time.Second // one question with its token and body
	stallTimeout   = 60 * time.Second // without a byte of a layer; a slow link sends some
)

// Size limits for endless answers.
const (
	maxToken     = 64 << 10
	maxHeader    = 64 << 10
	maxRedirects = 9 // as in containerd, which sends ten requests
	// maxChallenges limits the 401 answers of different hosts that one question handles, as in containerd.
	maxChallenges = 4
)

// maxRetryAfter is the longest wait that a host may ask for; a longer one is cut, so that one bad answer cannot end all
// polling.
const maxRetryAfter = 24 * time.Hour

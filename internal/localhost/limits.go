// SPDX-License-Identifier: Apache-2.0

package localhost

import "time"

// What is read at most, in bytes.
const (
	maxTable   = 4 << 20  // JSON writes some letters in six
	maxRequest = 16 << 10 // the line and the headers of a request
	maxAnswers = 64 << 10 // the journal of answers; it begins anew there
	maxHosts   = 16 << 10 // a hosts.toml that we add our host to
)

// patience is how long a connection may take, below RuntimeMaxSec= of the service: a process that is killed for it has
// failed, one that ends by itself has not.
const patience = 4 * time.Second

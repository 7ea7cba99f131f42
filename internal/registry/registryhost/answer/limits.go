// SPDX-License-Identifier: Apache-2.0

package answer

import "time"

// maxRequest is the maximum size of the line and the headers of a request, in bytes, and usualRequest exceeds the size
// of containerd's requests.
const (
	maxRequest   = 8 << 10
	usualRequest = 1 << 10
)

// places is the number of clients served at once, and grace how long one keeps its place when all are taken.
const (
	places = 512
	grace  = 20 * time.Millisecond
)

// idle is the time without a new client after which a process ends, and life its maximum age: far below RuntimeMaxSec=
// of the service, so that only a hanging process is killed by systemd. A process that started slowly serves for least.
const (
	idle  = time.Second
	life  = 3 * time.Second
	least = time.Second / 2
)

// silence is how long a client may send nothing, requestTime how long its request may take, and patience the limit for
// everything. They start when it gets a place.
const (
	silence     = 300 * time.Millisecond
	requestTime = time.Second
	patience    = 2 * time.Second
)

// maxLines is the number of answers per process that are logged. There are as many processes as one per life.
const maxLines = 100

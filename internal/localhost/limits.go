// SPDX-License-Identifier: Apache-2.0

package localhost

import "time"

// What is read at most, in bytes.
const (
	maxTable   = 4 << 20  // JSON writes some letters in six
	maxRequest = 8 << 10  // the line and the headers of a request
	maxAnswers = 64 << 10 // the journal of answers; it begins anew there
	maxHosts   = 16 << 10 // a hosts.toml that we add our host to
)

// usualRequest is more than what containerd sends, in bytes.
const usualRequest = 1 << 10

// places is how many clients are served at once, and grace how long one keeps its place when all are taken.
const (
	places = 512
	grace  = 20 * time.Millisecond
)

// idle is after which time without a new client a process ends, and life how old it gets: far below RuntimeMaxSec= of
// the service, so that what systemd kills for its age hangs. One that was started slowly serves for least.
const (
	idle  = time.Second
	life  = 3 * time.Second
	least = time.Second / 2
)

// silence is how long a client may send nothing, requestTime how long its request may take, and patience how long all
// of it may. They begin with its place.
const (
	silence     = 300 * time.Millisecond
	requestTime = time.Second
	patience    = 2 * time.Second
)

// maxLines is how many answers of a process have a line in the log. There are as many processes as one for each life.
const maxLines = 100

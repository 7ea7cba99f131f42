// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"time"
)

// ready is how long the daemon may take to open its sockets, or to do what takes it less than a second, on a machine
// that is full: who waits for what comes waits no longer for it.
const ready = time.Minute

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// plainClient asks programs of the tests.
var plainClient = http.Client{Timeout: ready}

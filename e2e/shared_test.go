// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"time"
)

// ready is how long the daemon may take to open its sockets on a busy machine.
const ready = 20 * time.Second

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

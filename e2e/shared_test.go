// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// ready is how long a story waits for what has to come.
const ready = node.Patience

// soakRounds is how often a story repeats what differs by chance: usual times, and IUA_ROUNDS in `make soak`.
func soakRounds(t *testing.T, usual int) int {
	t.Helper()
	text, set := os.LookupEnv("IUA_ROUNDS")
	if !set {
		return usual
	}
	rounds, err := strconv.Atoi(text)
	require.NoError(t, err, "IUA_ROUNDS")
	return rounds
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// plainClient asks programs of the tests.
var plainClient = http.Client{Timeout: ready}

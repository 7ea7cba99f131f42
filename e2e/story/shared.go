// SPDX-License-Identifier: Apache-2.0

package story

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Ready is how long a story waits for what has to come.
const Ready = node.Patience

// SoakRounds is how often a story repeats what differs by chance: usual times, and IUA_ROUNDS in `make soak`.
func SoakRounds(t *testing.T, usual int) int {
	t.Helper()
	text, set := os.LookupEnv("IUA_ROUNDS")
	if !set {
		return usual
	}
	rounds, err := strconv.Atoi(text)
	require.NoError(t, err, "IUA_ROUNDS")
	return rounds
}

// Address is a port of this machine, as HOST:PORT.
func Address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// PlainClient asks programs of the tests.
var PlainClient = http.Client{Timeout: Ready}

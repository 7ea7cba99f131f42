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

// Ready is the time limit of every wait in a story.
const Ready = node.Patience

// SoakRounds returns the number of repetitions of a story with random outcome: usual, or IUA_ROUNDS in `make soak`.
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

// Address returns HOST:PORT for a port of this machine.
func Address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// PlainClient sends requests to programs of the tests.
var PlainClient = http.Client{Timeout: Ready}

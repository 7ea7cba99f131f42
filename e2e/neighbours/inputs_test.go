// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/story"
)

// inputs returns the number of inputs of a test: usual, or IUA_ROUNDS as in `make soak`. The generator gives the same
// inputs in each run, unless IUA_SEED is set.
func inputs(t *testing.T, usual int) (int, *rand.Rand) {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("IUA_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "IUA_SEED")
	}
	t.Logf("IUA_SEED=%d", seed)
	return story.SoakRounds(t, usual), rand.New(rand.NewPCG(seed, 2))
}

// oneOf returns one of the texts.
func oneOf(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

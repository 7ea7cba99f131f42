// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestSlow checks that responses share the rate of a slow line, and that the line does not accumulate unused time.
func TestSlow(t *testing.T) {
	t.Parallel()
	r, now := &Registry{}, time.Unix(100, 0)
	assert.Zero(t, r.line.takes(1<<40, now), "no limit")
	r.Slow(1000)
	assert.Equal(t, 500*time.Millisecond, r.line.takes(500, now))
	assert.Equal(t, time.Second, r.line.takes(500, now), "behind the first")
	assert.Equal(t, 500*time.Millisecond, r.line.takes(500, now.Add(time.Hour)))
	r.Slow(0)
	assert.Zero(t, r.line.takes(500, now.Add(time.Hour)), "as fast as before")
}

// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStartOfAProcess(t *testing.T) {
	t.Parallel()
	const line = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1000 100"
	for text, want := range map[string]time.Duration{
		line: 123450 * time.Millisecond, "7 (a) S 1 2": 0, "": 0, "7 (a) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 x 1": 0,
	} {
		at, ok := startOf([]byte(text))
		assert.Equal(t, want, at, text)
		assert.Equal(t, want != 0, ok, text)
	}
}

// The time is the kernel's: this process is older than a file that it creates, and a second call returns the same time.
func TestBorn(t *testing.T) {
	t.Parallel()
	stat, err := os.ReadFile("/proc/self/stat")
	require.NoError(t, err)
	_, ok := startOf(stat)
	require.True(t, ok, string(stat))
	first := born()
	assert.True(t, first.Before(time.Now()))
	assert.WithinDuration(t, first, born(), time.Minute)
}

// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
)

func TestReserveIsTheLargestOfThree(t *testing.T) {
	t.Parallel()
	const gb = int64(1e9)
	need := policy.SpaceNeeded{Compressed: gb, Unpacked: 2 * gb}
	for name, c := range map[string]struct {
		reserve     policy.Reserve
		size, least int64 // least bytes must be free for the pull
	}{
		"no reserve":     {policy.Reserve{}, 10 * gb, 3 * gb},
		"bytes":          {policy.Reserve{Bytes: gb, Percent: 5, HighMark: 99}, 10 * gb, 4 * gb},
		"percent":        {policy.Reserve{Bytes: gb, Percent: 20, HighMark: 85}, 100 * gb, 23 * gb},
		"high mark":      {policy.Reserve{Bytes: gb, Percent: 10, HighMark: 85}, 100 * gb, 18*gb + 1},
		"high mark of 0": {policy.Reserve{Percent: 1}, 100 * gb, 4 * gb},
	} {
		for _, others := range []int64{0, gb} {
			fs := policy.Filesystem{Path: "/var", Size: c.size, Free: c.least + others}
			_, short := c.reserve.Shortage(fs, need, others)
			assert.False(t, short, name)
			fs.Free--
			err, short := c.reserve.Shortage(fs, need, others)
			assert.True(t, short, name)
			require.ErrorIs(t, err, release.ErrHeld)
		}
	}
	_, short := policy.Reserve{Bytes: gb}.Shortage(policy.Filesystem{}, need, 0)
	assert.False(t, short, "an unknown size holds nothing")
	err, _ := policy.Reserve{Bytes: gb}.Shortage(policy.Filesystem{Path: "/var", Size: 9 * gb, Free: 999}, policy.SpaceNeeded{Compressed: 12e6, Unpacked: 1}, 0)
	assert.EqualError(t, err, "needs 12.0 MB to pull and 1 bytes to unpack with 1.0 GB of 9.0 GB kept free, but only 999 bytes are free on /var")
}

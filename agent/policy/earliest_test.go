// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/policy"
)

func TestEarliest(t *testing.T) {
	t.Parallel()
	slot := time.Date(2026, time.November, 25, 12, 0, 0, 0, time.UTC)
	hour := func(n int) time.Time { return slot.Add(time.Duration(n) * time.Hour) }
	for name, c := range map[string]struct {
		slot    time.Time
		retries []time.Time
		want    time.Time
	}{
		"without retries":      {slot, nil, slot},
		"a retry before":       {slot, []time.Time{hour(-1)}, hour(-1)},
		"a retry behind":       {slot, []time.Time{hour(1)}, slot},
		"the first of many":    {slot, []time.Time{hour(1), hour(-1), hour(-2)}, hour(-2)},
		"polling is off":       {time.Time{}, nil, time.Time{}},
		"off, and still waits": {time.Time{}, []time.Time{hour(-1)}, time.Time{}},
	} {
		assert.Equal(t, c.want, policy.Earliest(c.slot, c.retries), name)
	}
}

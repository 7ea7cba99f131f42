// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// An op may change the rollouts of several releases in different ways. The log may have dropped their promotions.
func TestSteersOf(t *testing.T) {
	t.Parallel()
	paused, resumed := &catalog.Rollout{Hours: 48, Paused: &catalog.Pause{}}, &catalog.Rollout{Hours: 48}
	entry := func(tag string, rollouts map[string]*catalog.Rollout, images ...string) (e catalog.Entry) {
		e.Do, e.Tag = catalog.ActionPromote, tag
		for _, image := range images {
			r := catalog.Release{Tag: "1.0", Rollout: rollouts[image]}
			e.Changes = append(e.Changes, catalog.Change{Image: image, Release: r})
		}
		return e
	}
	got := steersOf([]catalog.Entry{
		entry("paused", map[string]*catalog.Rollout{"a": paused}, "a"),
		entry("mixed", map[string]*catalog.Rollout{"a": resumed, "b": paused}, "a", "b"),
		entry("both", map[string]*catalog.Rollout{"a": paused, "c": paused}, "a", "c"),
		entry("promoted", map[string]*catalog.Rollout{"d": resumed}, "d"),
		entry("ended", nil, "a", "b"),
	})
	assert.Equal(t, map[string]string{
		"paused": "paused the rollout of", "mixed": "changed the rollout of", "both": "paused the rollout of",
		"ended": "ended the rollout of",
	}, got)
}

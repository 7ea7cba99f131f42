// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/tags"
)

// A tag that a person would call newer is named with why it is not offered; also by a poll that lists
// nothing, and after a restart.
func TestTagsThatLookNewerAreNamed(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Major})
	const note = "looks newer, not understood: 4.0.0-rev02 (leading zero in revision)"
	w.Registry.PublishBuild(velum, built("2", april.Add(time.Hour), ""), "4.0.0-rev02", "latest", "4.0.0-rev1-alpine")
	assert.Contains(t, image(w.check(), "velum.yaml", "velum").Notes, note)
	w.restart()
	assert.Equal(t, []string{note}, image(w.check(), "velum.yaml", "velum").Notes)
	w.Registry.PublishBuild(velum, built("3", april.Add(time.Hour), ""), "4.0.0-rev3")
	i := image(w.check(), "velum.yaml", "velum")
	assert.NotNil(t, i.Offered)
	assert.Empty(t, i.Notes, "what is offered is above it")
}

// Digits alone beside versions are dates and hashes.
func TestDatesAndHashesAreNoUpdate(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Major})
	w.Registry.PublishBuild(velum, built("2", april.Add(time.Hour), ""), "20240115", "1234567", "20240115-rev1", "4.0.0-rev20240115", "v20240115", "2024-01-15")
	i := image(w.check(), "velum.yaml", "velum")
	assert.Nil(t, i.Offered)
	assert.Empty(t, i.Notes)
	assert.Empty(t, i.NotAllowed)
	assert.Empty(t, i.Refused)
}

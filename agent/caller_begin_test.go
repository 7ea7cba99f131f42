// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// A restart does not begin when its caller has left; what has begun goes on, and pods of other callers are not concerned.
func TestNothingBeginsForACallerThatHasLeft(t *testing.T) {
	t.Parallel()
	c := newCaller()
	for _, file := range []string{"begun.yaml", "waits.yaml"} {
		c.approves(status.Outcome{PodManifest: file}, nil)
	}
	assert.True(t, c.Begin("begun.yaml"))
	assert.True(t, c.leave(), "something has begun")
	assert.True(t, c.Begin("begun.yaml"))
	assert.False(t, c.Begin("waits.yaml"))
	assert.True(t, c.Begin("of-another.yaml"))
}

// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent"
)

// CRI hears of an image by an event, which comes late on a busy node.
func TestStagedImageMayBeListedALittleLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.Node.Unlisted = 5
		began := time.Now()
		s := w.poll()
		assert.Equal(t, agent.StateStaged, s.State, s.Reason)
		assert.Equal(t, next.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
		assert.Equal(t, 2500*time.Millisecond, time.Since(began))
	})
}

func TestStagedImageThatCRINeverListsIsNotOffered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.Node.Unlisted = 1000
		began := time.Now()
		s := w.poll()
		assert.Equal(t, agent.StateFailed, s.State)
		assert.Contains(t, s.Reason, "staged, but cri does not list it after 10s")
		assert.Equal(t, 10*time.Second, time.Since(began))
	})
}

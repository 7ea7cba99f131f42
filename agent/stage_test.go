// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// What could not be pulled is tried again in the next cycle, not at once: the files that wait for it do not change that.
func TestFailedPullIsTriedOnceACycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(velum, "4.0.0", 2, "2.1")
		tried := 0
		w.Node.OnStage = func(context.Context, release.Release) error {
			tried++
			return errors.New("the registry broke off")
		}
		w.check()
		assert.Equal(t, 1, tried)
		w.observe()
		assert.Equal(t, 2, tried)
	})
}

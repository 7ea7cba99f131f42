// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// An error that quotes a password, from wherever it comes, is shown without it: in the status, its JSON, and the grain.
func TestStatusHasNoSecret(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Down(errors.New(`parse "https://user:hunter2%zz@mirror.example.com": invalid URL escape "%zz"`))
		s := w.check()
		assert.Equal(t, status.StateStale, s.State)
		text, err := json.Marshal(s)
		require.NoError(t, err)
		assert.Contains(t, string(text), "mirror.example.com")
		assert.NotContains(t, string(text), "hunter2")
		w.Node.OnStop = func(string) error { return errors.New("hook: password=hunter2") }
		w.Registry.Down(nil)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		_, s = w.apply()
		text, err = json.Marshal(s)
		require.NoError(t, err)
		assert.Contains(t, string(text), "hook: ")
		assert.NotContains(t, string(text), "hunter2")
	})
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/internal/node/config"
)

// The journal has no password, in whichever format.
func TestTheLogHasNoSecret(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := logger(&out, config.Log{Level: slog.LevelInfo, Format: format})
		log.With("url", "https://u:hunter2@host/").Warn("source does not answer",
			"err", errors.New(`parse "https://u:hunter2%zz@host": invalid URL escape "%zz"`))
		assert.Contains(t, out.String(), "@host", format)
		assert.NotContains(t, out.String(), "hunter2", format)
	}
}

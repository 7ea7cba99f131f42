// SPDX-License-Identifier: Apache-2.0

package state

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/record"
)

func TestStoreConforms(t *testing.T) {
	t.Parallel()
	agenttest.TestRecorder(t, func(t *testing.T) (record.Recorder, func() record.Recorder) {
		root := t.TempDir()
		open := func() record.Recorder {
			return New(filepath.Join(root, "lib"), filepath.Join(root, "run"), slog.New(slog.DiscardHandler))
		}
		return open(), open
	})
}

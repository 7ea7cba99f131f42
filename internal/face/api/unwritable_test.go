// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// A client was told that the daemon had ended, or nothing at all, and nobody else heard of it.
func TestWhatCannotBeWrittenIsAnErrorAndNoEmptyAnswer(t *testing.T) {
	t.Parallel()
	unwritable := status.Status{SchemaVersion: 1, Since: time.Date(10_000, time.January, 1, 0, 0, 0, 0, time.UTC)}
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(t.Context(), path, false, &daemon{
		status: unwritable,
		check:  func(func(status.Progress)) (status.Status, error) { return unwritable, nil },
	}, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	c := NewClient(path)
	_, err = c.Status(t.Context())
	require.ErrorContains(t, err, "500 Internal Server Error: status: ")
	require.ErrorContains(t, err, "year outside of range")
	_, err = c.Check(t.Context(), nil)
	require.ErrorContains(t, err, "result: ")
	require.ErrorContains(t, err, "year outside of range")
	require.NoError(t, s.Drain(time.Minute))
	require.NoError(t, <-ended)
	assert.Contains(t, log.String(), `level=ERROR msg="cannot write the status"`)
	assert.Contains(t, log.String(), `level=ERROR msg="cannot write the result" request=/v1/check`)
}

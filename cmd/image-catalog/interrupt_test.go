// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// stuck is a standard input that nobody writes to. It cancels the verb that reads it.
type stuck struct {
	cancel  func()
	release <-chan struct{}
}

func (s stuck) Read([]byte) (int, error) {
	s.cancel()
	<-s.release
	return 0, errors.New("released")
}

// An interrupt ends a verb at once, also while it waits for its input.
func TestInterruptEndsReading(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	a := newApp(streams{in: stuck{cancel, release}, out: &strings.Builder{}, err: &strings.Builder{}})
	_, err := a.wanted(ctx, nil, "-")
	require.ErrorIs(t, err, context.Canceled)

	fifo := filepath.Join(t.TempDir(), "key")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	_, err = readKey(ctx, fifo)
	require.ErrorIs(t, err, context.Canceled)
	_, err = readSignatures(ctx, []string{fifo})
	require.ErrorIs(t, err, context.Canceled)
}

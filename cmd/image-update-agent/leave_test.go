// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/api"
)

// left is a daemon whose caller interrupts each apply.
type left struct {
	writer
	interrupt context.CancelFunc
}

func (l left) Apply(ctx context.Context, _ agent.ApplyRequest, _ func(status.Progress)) ([]status.Outcome, error) {
	l.interrupt()
	<-ctx.Done()
	return []status.Outcome{
		{PodManifest: "etcd.yaml", Change: "rebuild", Result: status.ResultContinues, Reason: "it had begun, and goes on"},
		{PodManifest: "velum.yaml", Change: "revision", Result: status.ResultCanceled, Reason: "taken back"},
	}, nil
}

// Ctrl-C in an apply says what goes on, and how to undo it.
func TestAnInterruptedApplySaysWhatGoesOn(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"text", "json"} {
		ctx, interrupt := context.WithCancel(t.Context())
		root := t.TempDir()
		s, err := (&app{root: root}).settings()
		require.NoError(t, err)
		socket := s.socket("agent.sock")
		require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o755))
		server, err := api.Listen(t.Context(), socket, false, left{interrupt: interrupt}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve() }()
		var out, errs bytes.Buffer
		code := execute(ctx, []string{"apply", "--root", root, "--output", output}, streams{
			in: strings.NewReader(""), out: &out, err: &errs,
		})
		assert.Equal(t, exitFailed, code)
		assert.Contains(t, out.String(), "continues")
		assert.Contains(t, out.String(), "canceled")
		assert.Contains(t, errs.String(), "`image-update-agent rollback etcd.yaml` undoes it when it has ended")
		assert.NotContains(t, errs.String(), "velum.yaml")
		require.NoError(t, server.Close())
		require.NoError(t, <-ended)
	}
}

// A status socket that somebody else holds does not keep root from the status.
func TestRootsStatusIsNotCrowdedOut(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s, err := (&app{root: root}).settings()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(s.socket("agent.sock")), 0o755))
	held, err := new(net.ListenConfig).Listen(t.Context(), "unix", s.socket("status.sock")) // nobody answers
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, held.Close()) })
	server, err := api.Listen(t.Context(), s.socket("agent.sock"), false, left{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	var out, errs bytes.Buffer
	code := execute(t.Context(), []string{"status", "--root", root}, streams{in: strings.NewReader(""), out: &out, err: &errs})
	assert.Equal(t, exitDone, code, errs.String())
	require.NoError(t, server.Close())
	require.NoError(t, <-ended)
}

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
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
)

// left is a daemon whose caller stops waiting as soon as an apply has begun.
type left struct {
	writer
	end context.CancelCauseFunc // of the caller's wait
	why error
}

func (l left) Apply(ctx context.Context, _ agent.ApplyRequest, _ func(status.Progress)) ([]status.Outcome, error) {
	l.end(l.why)
	<-ctx.Done()
	return []status.Outcome{
		{PodManifest: "etcd.yaml", Change: "rebuild", Result: status.ResultContinues, Reason: "already restarting; continues without the caller"},
		{PodManifest: "velum.yaml", Change: "revision", Result: status.ResultCanceled, Reason: "taken back"},
	}, nil
}

// Ctrl-C in an apply says what goes on, and how to undo it.
func TestAnInterruptedApplySaysWhatGoesOn(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"text", "json"} {
		ctx, end := context.WithCancelCause(t.Context())
		root := t.TempDir()
		listening(t, root, left{end: end, why: interruption{syscall.SIGINT}})
		var out, errs bytes.Buffer
		code := execute(ctx, []string{"apply", "--root", root, "--output", output}, streams{
			in: strings.NewReader(""), out: &out, err: &errs,
		})
		assert.Equal(t, 130, code)
		assert.Contains(t, out.String(), "continues")
		assert.Contains(t, out.String(), "canceled")
		assert.Contains(t, errs.String(), "error: interrupt signal received: the daemon continues with etcd.yaml\n")
		assert.Contains(t, errs.String(), "when it has ended, `image-update-agent rollback etcd.yaml` undoes it\n")
		assert.NotContains(t, errs.String(), "velum.yaml")
	}
}

// The end of --timeout ends the wait as an interrupt does, with an exit code of its own.
func TestAnApplyThatTimesOutSaysWhatGoesOn(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancelCause(t.Context())
	root := t.TempDir()
	listening(t, root, left{end: end, why: timeout{10 * time.Minute}})
	var out, errs bytes.Buffer
	code := execute(ctx, []string{"apply", "--root", root}, streams{in: strings.NewReader(""), out: &out, err: &errs})
	assert.Equal(t, exitTimeout, code)
	assert.Contains(t, out.String(), "continues")
	assert.Contains(t, errs.String(), "error: timed out after 10m0s: the daemon continues with etcd.yaml\n")
}

func TestTimeoutEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end, err := (&waiting{timeout: 10 * time.Minute}).limit(t.Context())
		require.NoError(t, err)
		defer end()
		begun := time.Now()
		<-ctx.Done()
		assert.Equal(t, 10*time.Minute, time.Since(begun))
		assert.Equal(t, timeout{10 * time.Minute}, context.Cause(ctx))
	})
}

// A time that passes before the daemon takes the request is no missing daemon.
func TestATimeoutBeforeTheDaemonAnswers(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"apply", "check"} {
		root := t.TempDir()
		listening(t, root, slow{left{end: func(error) {}}})
		var out, errs bytes.Buffer
		args := []string{verb, "--root", root, "--timeout", "1ns"}
		code := execute(t.Context(), args, streams{in: strings.NewReader(""), out: &out, err: &errs})
		assert.Equal(t, exitTimeout, code, verb)
		assert.Contains(t, errs.String(), "error: timed out after 1ns", verb)
	}
}

// slow is a daemon whose check takes longer than its caller waits.
type slow struct{ left }

func (slow) Check(ctx context.Context, _ func(status.Progress)) (status.Status, error) {
	<-ctx.Done()
	return status.Status{}, ctx.Err()
}

func TestACheckThatTimesOutSaysWhatGoesOn(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	listening(t, root, slow{})
	var out, errs bytes.Buffer
	args := []string{"check", "--root", root, "--timeout", "10ms"}
	code := execute(t.Context(), args, streams{in: strings.NewReader(""), out: &out, err: &errs})
	assert.Equal(t, exitTimeout, code)
	assert.Equal(t, "image-update-agent: error: timed out after 10ms\n"+
		"image-update-agent: hint: the daemon finishes what it has begun; `image-update-agent status` shows it\n", errs.String())
}

// listening serves the acting socket of a root directory until the test ends.
func listening(t *testing.T, root string, d api.Daemon) {
	t.Helper()
	s, err := (&app{root: root}).settings()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(s.socket("agent.sock")), 0o755))
	server, err := api.Listen(t.Context(), s.socket("agent.sock"), false, d, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		assert.NoError(t, <-ended)
	})
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

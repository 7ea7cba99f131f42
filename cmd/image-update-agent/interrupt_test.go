// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fifo makes a FIFO that nobody writes to. Whoever is left waiting for it comes free at
// the end of the test.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo.yaml")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	t.Cleanup(func() {
		handle, err := os.OpenFile(path, os.O_RDWR, 0) // of both sides, so that it does not wait
		require.NoError(t, err)
		require.NoError(t, handle.Close())
	})
	return path
}

// Every verb that reads what it is given ends when it is interrupted, be it a terminal
// that nobody types at, a pipe or a FIFO.
func TestAnInterruptEndsWhatReads(t *testing.T) {
	t.Parallel()
	file := fifo(t)
	for _, args := range [][]string{
		{"tags", "parse"},
		{"tags", "sort", "--output", "json"},
		{"tags", "newest", "--follow", "1.0"},
		{"manifests", "images", file},
		{"manifests", "images", "-"},
		{"manifests", "render", file},
		{"manifests", "render", "--diff", "-"},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			t.Parallel()
			in, keptOpen, err := os.Pipe()
			require.NoError(t, err)
			defer func() { _, _ = in.Close(), keptOpen.Close() }()
			ctx, interrupt := context.WithCancelCause(t.Context())
			interrupt(interruption{syscall.SIGINT})
			var out, errs bytes.Buffer
			assert.Equal(t, 130, execute(ctx, args, streams{in: in, out: &out, err: &errs}))
			assert.Contains(t, errs.String(), "interrupt signal received\n")
			assert.Empty(t, out.String())
		})
	}
}

// stuck is a terminal that takes nothing, as after Ctrl-S.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) { <-s; return len(p), nil }
func (s stuck) Read([]byte) (int, error)    { <-s; return 0, io.EOF }

// What waits elsewhere, as for a terminal that takes no output, is left behind.
func TestAnInterruptEndsWhatCannotBeWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancelCause(t.Context())
		terminal := make(stuck)
		defer close(terminal)
		code := make(chan int)
		var errs bytes.Buffer
		go func() {
			code <- execute(ctx, []string{"version"}, streams{in: terminal, out: terminal, err: &errs})
		}()
		synctest.Wait()
		interrupt(interruption{syscall.SIGTERM})
		assert.Equal(t, 143, <-code)
		assert.Equal(t, "image-update-agent: error: terminated signal received\n", errs.String())
	})
}

// Both streams are one terminal, or one full pipe, where nothing can be said either.
func TestAnInterruptEndsWhereNothingCanBeSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		terminal := make(stuck)
		defer close(terminal)
		code := make(chan int, 1)
		go func() { code <- execute(ctx, []string{"version"}, streams{in: terminal, out: terminal, err: terminal}) }()
		synctest.Wait()
		interrupt()
		select {
		case got := <-code:
			assert.Equal(t, exitFailed, got)
		case <-time.After(10 * grace):
			assert.Fail(t, "it waits for the terminal")
		}
	})
}

// What acts on the node ends by itself: half of it is not left.
func TestAnInterruptWaitsForWhatActs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		done := make(stuck)
		a := newApp(streams{in: done, out: io.Discard, err: io.Discard})
		verb := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error {
			a.acts.Store(true)
			<-done
			return nil
		}}
		code := make(chan int)
		go func() { code <- a.execute(ctx, verb) }()
		synctest.Wait()
		interrupt()
		<-time.After(10 * grace)
		select {
		case <-code:
			assert.Fail(t, "it must not end before what it does has ended")
		default:
		}
		close(done)
		assert.Equal(t, exitDone, <-code)
	})
}

// Every verb that acts on the node by itself says so; who waits for the daemon, or looks, does not.
func TestWhichVerbsAct(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for verb, acts := range map[string]bool{
		"run --once": true, "put-back": true, "hook": true,
		"status": false, "plan": false, "check": false, "apply": false, "reload": false, "config show": false,
	} {
		var out, errs bytes.Buffer
		a := newApp(streams{in: strings.NewReader(""), out: &out, err: &errs})
		cmd := a.command()
		cmd.SetArgs(append(strings.Fields(verb), "--root", root))
		a.execute(t.Context(), cmd)
		assert.Equal(t, acts, a.acts.Load(), "%s: %s", verb, errs.String())
	}
}

// The program itself, with real signals.
func TestSignalsEndTheProgram(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			file := fifo(t)
			program := exec.CommandContext(t.Context(), "image-update-agent", "manifests", "images", file)
			var errs bytes.Buffer
			program.Stderr = &errs
			require.NoError(t, program.Start())
			writer, err := os.OpenFile(file, os.O_WRONLY, 0) // waits until the program has opened it
			require.NoError(t, err)
			defer func() { _ = writer.Close() }()
			require.NoError(t, program.Process.Signal(signal))
			ended, ok := errors.AsType[*exec.ExitError](program.Wait())
			require.True(t, ok)
			assert.Equal(t, 128+int(signal), ended.ExitCode())
			assert.Contains(t, errs.String(), signal.String()+" signal received")
		})
	}
}

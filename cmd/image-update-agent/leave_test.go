// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
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

// Ctrl-C in an apply says what goes on, and how to undo it; the end of --timeout ends the wait as an interrupt does, with
// an exit code of its own.
func TestAnApplyThatIsLeftSaysWhatGoesOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why    error
		output string
		code   int
		said   string
	}{
		{interruption{syscall.SIGINT}, "text", 130, "interrupt signal received"},
		{interruption{syscall.SIGINT}, "json", 130, "interrupt signal received"},
		{timeout{10 * time.Minute}, "text", exitTimeout, "timed out after 10m0s"},
	} {
		ctx, end := context.WithCancelCause(t.Context())
		root := t.TempDir()
		listening(t, root, left{end: end, why: c.why})
		var out, errs bytes.Buffer
		code := execute(ctx, []string{"apply", "--root", root, "--output", c.output}, streams{
			in: strings.NewReader(""), out: &out, err: &errs,
		})
		assert.Equal(t, c.code, code)
		assert.Contains(t, out.String(), "continues")
		assert.Contains(t, out.String(), "canceled")
		assert.Contains(t, errs.String(), "error: "+c.said+": the daemon continues with etcd.yaml\n")
		assert.Contains(t, errs.String(), "when it has ended, `image-update-agent rollback etcd.yaml` undoes it\n")
		assert.NotContains(t, errs.String(), "velum.yaml")
	}
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
		code, _, errs := ends(t, verb, "--root", root, "--timeout", "1ns")
		assert.Equal(t, exitTimeout, code, verb)
		assert.Contains(t, errs, "error: timed out after 1ns", verb)
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
	code, _, errs := ends(t, "check", "--root", root, "--timeout", "10ms")
	assert.Equal(t, exitTimeout, code)
	assert.Equal(t, "image-update-agent: error: timed out after 10ms\n"+
		"image-update-agent: hint: the daemon finishes what it has begun; `image-update-agent status` shows it\n", errs)
}

// listening serves sockets of a root directory until the test ends; none: the acting one.
func listening(t *testing.T, root string, d api.Daemon, sockets ...string) {
	t.Helper()
	s, err := (&app{root: root}).settings()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(s.RuntimeDir, 0o755))
	if len(sockets) == 0 {
		sockets = []string{"agent.sock"}
	}
	for _, name := range sockets {
		server, err := api.Listen(t.Context(), s.socket(name), name == "status.sock", d, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		if watched, is := d.(api.Watched); is {
			server.Watch(watched)
		}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve() }()
		t.Cleanup(func() {
			assert.NoError(t, server.Close())
			assert.NoError(t, <-ended)
		})
	}
}

// A status socket that somebody else holds does not keep root from the status.
func TestRootsStatusIsNotCrowdedOut(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s, err := (&app{root: root}).settings()
	require.NoError(t, err)
	listening(t, root, left{})
	held, err := new(net.ListenConfig).Listen(t.Context(), "unix", s.socket("status.sock")) // nobody answers
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, held.Close()) })
	code, _, errs := ends(t, "status", "--root", root)
	assert.Equal(t, exitDone, code, errs)
}

// An interrupted verb that waits for the daemon says that the daemon does not
// stop for it.
func TestWhatAnInterruptEnds(t *testing.T) {
	t.Parallel()
	for _, verb := range [][]string{{"check"}, {"apply"}, {"rollback", "--all"}} {
		t.Run(verb[0], func(t *testing.T) { // each waits for an answer that does not come
			t.Parallel()
			root := t.TempDir()
			run := filepath.Join(root, "run/image-update-agent")
			require.NoError(t, os.MkdirAll(run, 0o755))
			listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(run, "agent.sock"))
			require.NoError(t, err)
			ctx, interrupt := context.WithCancelCause(t.Context())
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				defer interrupt(interruption{syscall.SIGINT})
				conn, err := listener.Accept()
				if assert.NoError(t, err, "%s does not ask", verb) {
					_, err = conn.Read(make([]byte, 1))
					assert.NoError(t, err)
				}
			}()
			var out, errs bytes.Buffer
			code := execute(ctx, append(verb, "--root", root), streams{in: strings.NewReader(""), out: &out, err: &errs})
			require.NoError(t, listener.Close()) // first: a verb that has not asked is not awaited
			<-asked
			assert.Equal(t, 130, code)
			assert.Contains(t, errs.String(), "error: interrupt signal received\n")
			assert.Contains(t, errs.String(), "hint: the daemon finishes what it has begun; `image-update-agent status` shows it\n", verb)
		})
	}
}

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

// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost/answer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var velum = agenttest.LocalRegistryEntry("caasp/v4/velum", "4.0.0-rev1", "a manifest")

func oneTag() localregistry.Table { return localregistry.Table{Entries: []localregistry.Entry{velum}} }

// saved saves a table in a new directory and returns its path.
func saved(t *testing.T, content localregistry.Table) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, NewStore(dir).Save(t.Context(), content))
	return filepath.Join(dir, table.File)
}

func TestStoreConforms(t *testing.T) {
	t.Parallel()
	agenttest.TestLocalRegistry(t, func(t *testing.T) agenttest.LocalRegistryUnderTest {
		dir := t.TempDir()
		path := filepath.Join(dir, table.File)
		return agenttest.LocalRegistryUnderTest{
			Store: NewStore(dir),
			Read: func(t *testing.T) localregistry.Table {
				read, err := ReadTable(path)
				require.NoError(t, err)
				return read
			},
			Written: func(t *testing.T) string {
				info, err := os.Stat(path)
				require.NoError(t, err)
				return nodefile.Stamp(info)
			},
		}
	})
}

// The local registry runs as another user, for any umask of the daemon.
func TestTableIsReadableByAllUsers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lib") // does not exist
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	require.NoError(t, NewStore(dir).Save(t.Context(), oneTag()))
	info, err := os.Stat(filepath.Join(dir, table.File))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o644), info.Mode())
}

func TestUnusableTableIsAnError(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile(saved(t, oneTag()))
	require.NoError(t, err)
	edit := func(old, replacement string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, bytes.Replace(good, []byte(old), []byte(replacement), 1), 0o600))
		}
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		want  string
	}{
		"missing": {func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }, "no such file"},
		"empty":   {func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) }, "not a table in JSON"},
		"torn": {func(t *testing.T, path string) {
			require.NoError(t, os.Truncate(path, int64(len(good)/2)))
		}, "not a table in JSON"},
		"longer":           {edit("\n}\n", "\n}\n{}"), "more than a table"},
		"newer":            {edit(`"schemaVersion": 1`, `"schemaVersion": 2`), "version 2, want 1"},
		"without version":  {edit(`"schemaVersion"`, `"version"`), "version 0"},
		"a broken digest":  {edit("sha256:", "sha256:x"), "digest: not sha256"},
		"a foreign owner":  {func(t *testing.T, path string) { require.NoError(t, os.Chown(path, 4711, -1)) }, "owned by user 4711"},
		"others may write": {func(t *testing.T, path string) { require.NoError(t, os.Chmod(path, 0o666)) }, "others may write"},
		"a FIFO": {func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, syscall.Mkfifo(path, 0o600))
		}, "not a regular file"},
		"too large": {func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, table.MaxFile+1)) }, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := saved(t, oneTag())
			c.spoil(t, path)
			read, err := ReadTable(path)
			require.ErrorContains(t, err, c.want)
			assert.Empty(t, read.Entries)
		})
	}
}

// The largest table that may be saved can be read.
func TestTheLargestTableCanBeRead(t *testing.T) {
	t.Parallel()
	for _, text := range []int{table.MaxText, table.MaxTexts / table.MaxEntries / 4} {
		var largest localregistry.Table
		for i := range table.MaxTexts / text / 4 {
			e := velum
			e.Registry, e.Repository = strings.Repeat("r", text), strings.Repeat("&", text)
			e.Tag, e.MediaType = fmt.Sprintf("%0*d", text, i), strings.Repeat("<", text)
			largest.Entries = append(largest.Entries, e)
		}
		read, err := ReadTable(saved(t, largest))
		require.NoError(t, err)
		assert.Equal(t, largest, read)
		more := largest.Entries[0]
		more.Registry = strings.Repeat("q", text)
		largest.Entries = append([]localregistry.Entry{more}, largest.Entries...)
		require.Error(t, largest.Check())
	}
}

func FuzzTable(f *testing.F) {
	data, err := table.Format(oneTag())
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"schemaVersion":1,"entries":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := table.Parse(data)
		if err != nil {
			require.Empty(t, read.Entries)
			return
		}
		require.NoError(t, NewStore(t.TempDir()).Save(t.Context(), read), "what is read can be saved")
	})
}

func TestAnswersAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	journal := AnswersAt(filepath.Join(dir, answer.JournalFile))
	none, err := journal()
	require.NoError(t, err)
	assert.Empty(t, none.Last)
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for minute, r := range []answer.Result{answer.Served, answer.Unknown, answer.Served, answer.Refused} {
		answer.Note(dir, r, velum, noon.Add(time.Duration(minute)*time.Minute))
	}
	got, err := journal()
	require.NoError(t, err)
	assert.Equal(t, localregistry.Journal{
		Served: 2, Unknown: 1, Refused: 1,
		Last: map[string]time.Time{"registry.suse.com/caasp/v4/velum:4.0.0-rev1": noon.Add(2 * time.Minute)},
	}, got)
}

func FuzzAnswers(f *testing.F) {
	f.Add("1 served a/b:c\n99999999999999 served a/b:c\n-1 unknown\n1 refused x\n\x00")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAnswers([]byte(text))
		require.NoError(t, err)
		require.LessOrEqual(t, len(a.Last), table.MaxEntries)
		_, err = json.Marshal(a)
		require.NoError(t, err)
	})
}

// listening returns the address of a program that serves connections.
func listening(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	return listener.Addr().String()
}

// answering returns the address of a local registry.
func answering(t *testing.T, s *answer.Server) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	socket, err := listener.(*net.TCPListener).File()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil { // each process ends when it is idle
			err = s.ServeFile(ctx, socket)
		}
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
		assert.NoError(t, errors.Join(socket.Close(), listener.Close()))
	})
	return listener.Addr().String()
}

// The agent's own request is answered like containerd's, and does not count as the start of a container.
func TestAsk(t *testing.T) {
	t.Parallel()
	path, answers := saved(t, oneTag()), t.TempDir()
	address := answering(t, answer.NewServer(path, answers, slog.New(slog.DiscardHandler)))
	require.NoError(t, ask(t.Context(), address, velum))
	assert.NoFileExists(t, filepath.Join(answers, answer.JournalFile))

	other := velum
	other.Digest = digest.FromString("other").String()
	require.ErrorContains(t, ask(t.Context(), address, other), "another program")
	other.Tag = "5.0.0-rev1"
	require.ErrorContains(t, ask(t.Context(), address, other), "404 Not Found")
	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, ask(t.Context(), address, velum), "404 Not Found")
}

func TestAskWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, ask(t.Context(), "127.0.0.1:1", velum), "connection refused")

	hangsUp := listening(t, func(conn net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_ = conn.Close()
	})
	require.ErrorIs(t, ask(t.Context(), hangsUp, velum), io.ErrUnexpectedEOF)

	ctx, cancel := context.WithCancel(t.Context())
	silent := listening(t, func(conn net.Conn) {
		t.Cleanup(func() { _ = conn.Close() })
		cancel()
	})
	require.Error(t, ask(ctx, silent, velum))
}

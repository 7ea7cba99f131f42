// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// holdVariable makes this test binary an agent that locks the directory lib below its own, reports it, and waits until
// its input ends.
const holdVariable = "STATE_TEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holdVariable) == "" {
		os.Exit(m.Run())
	}
	_, err := New("lib", "run", slog.New(slog.DiscardHandler)).Lock(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestSecondAgentIsKeptOut(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err)
	_, err = New(s.stateDir, s.runtimeDir, slog.New(slog.DiscardHandler)).Lock(t.Context())
	require.ErrorIs(t, err, ErrLocked)
	require.EqualError(t, err, fmt.Sprintf("state: %s/lock: locked by another agent: process %d", s.stateDir, os.Getpid()))
	unlock()
	unlock, err = s.Lock(t.Context())
	require.NoError(t, err)
	unlock()
}

// Not in parallel: between fork and exec a new process of another test has these locks, too.
func TestTheLockEndsWithItsProcess(t *testing.T) { //nolint:paralleltest // see above
	s, _ := newStore(t)
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), holdVariable+"=1")
	other.Dir = filepath.Dir(s.stateDir)
	other.Stderr = os.Stderr
	input, err := other.StdinPipe()
	require.NoError(t, err)
	defer func() { _ = input.Close() }()
	output, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", line)

	_, err = s.Lock(t.Context())
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, "process "+strconv.Itoa(other.Process.Pid))
	require.NoError(t, other.Process.Kill())
	require.Error(t, other.Wait())
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err, "the file that was left says nothing")
	unlock()
}

func TestUnknownHolderOfTheLock(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	for _, text := range []string{"", "evil\nREADY=1"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.stateDir, lockFile), []byte(text), 0o600))
		_, err = s.Lock(t.Context())
		require.ErrorIs(t, err, ErrLocked)
		require.ErrorContains(t, err, "process unknown")
	}
}

func TestUnderTheLockCrashedWritesAreSwept(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	require.NoError(t, os.MkdirAll(s.runtimeDir, 0o755))
	const left = ".record.json.image-update-agent-0123456789abcdef"
	put(t, s, left, "")
	put(t, s, ".other", "")
	require.NoError(t, os.WriteFile(filepath.Join(s.runtimeDir, left), nil, 0o600))
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	assert.NoFileExists(t, filepath.Join(s.stateDir, left))
	assert.NoFileExists(t, filepath.Join(s.runtimeDir, left))
	assert.FileExists(t, filepath.Join(s.stateDir, ".other"))
}

func TestUnsafeLockIsNotTaken(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	put(t, s, "victim", "text")
	path := filepath.Join(s.stateDir, lockFile)
	require.NoError(t, os.Symlink("victim", path))
	_, err := s.Lock(t.Context())
	require.ErrorContains(t, err, "too many levels of symbolic links")
	assert.Equal(t, "text", content(t, s.stateDir, "victim"))
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err = s.Lock(t.Context())
	require.ErrorIs(t, err, nodefile.ErrUnsafe)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o755))
	_, err = s.Lock(t.Context())
	require.ErrorContains(t, err, "is a directory")
}

// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
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
	for _, left := range []string{"", s.stateDir, s.runtimeDir} { // an older agent, or one on a full disk, locks one file only
		if left != "" {
			unlock, err = nodefile.Lock(t.Context(), filepath.Join(left, lockFile), 0)
			require.NoError(t, err)
		}
		_, err = New(s.stateDir, s.runtimeDir, slog.New(slog.DiscardHandler)).Lock(t.Context())
		locked, is := errors.AsType[*nodefile.LockedError](err)
		require.True(t, is, "%v", err)
		assert.Equal(t, os.Getpid(), locked.PID)
		unlock()
	}
	unlock, err = s.Lock(t.Context())
	require.NoError(t, err)
	unlock()
}

// Any user can open the directories and the status, and lock them as `flock -s` does.
func TestAnotherUserKeepsNoAgentOut(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	require.NoError(t, s.Publish(t.Context(), status.Status{}))
	require.NoError(t, s.Save(t.Context(), record.Record{}))
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err)
	unlock()
	locked := 0
	for _, dir := range []string{s.stateDir, s.runtimeDir} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			info, infoErr := entry.Info()
			if err := errors.Join(err, infoErr); err != nil || info.Mode().Perm()&0o004 == 0 {
				return err
			}
			file, err := os.Open(path)
			if err == nil {
				t.Cleanup(func() { _ = file.Close() })
				locked++
				err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH) //nolint:forbidigo // the other user
			}
			return err
		}))
	}
	assert.Equal(t, 4, locked, "two directories and two statuses")
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
	require.ErrorContains(t, err, "locked by process "+strconv.Itoa(other.Process.Pid))
	require.NoError(t, other.Process.Kill())
	require.Error(t, other.Wait())
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err, "the file that was left says nothing")
	unlock()
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

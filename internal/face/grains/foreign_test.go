// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// Next to Salt, which truncates the file and writes it in place, the file stays readable for Salt, grains that Salt had
// written when Announce began stay (the roles always, because they are in every version), and once Salt is quiet the
// agent's keys are right. A grain that Salt writes in the very instant of the rename may be lost; the number is logged,
// not guaranteed.
func TestAnnounceNextToSalt(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	n := newNode(t, "roles:\n- kube-master\ncounter: -1\n")
	const rounds = 25
	lost, announced := 0, []Grain{nothing, staged}
	for round := range rounds {
		var both sync.WaitGroup
		both.Go(func() { assert.Empty(t, salt.setval(t, n.path, "counter", round)) })
		both.Go(func() {
			for i := range 4 {
				if _, err := n.store.Announce(t.Context(), announced[(round+i)%2]); err != nil {
					assert.ErrorIs(t, err, nodefile.ErrConflict)
				}
			}
		})
		both.Wait()
		between, _ := salt.load(t, []byte(n.content(t)))
		_, foreign := between.split(t)
		require.Len(t, foreign, 2)
		require.Contains(t, strings.Join(foreign, " "), `{"list":[{"str":"kube-master"}]}`)
		if !strings.Contains(n.content(t), fmt.Sprintf("counter: %d\n", round)) {
			lost++
		}

		_, err := n.store.Announce(t.Context(), announced[round%2])
		require.NoError(t, err, "salt is quiet now")
		after, _ := salt.load(t, []byte(n.content(t)))
		own, same := after.split(t)
		requireSays(t, announced[round%2], own)
		require.ElementsMatch(t, foreign, same, "what salt had written stays")
	}
	t.Logf("%d of %d concurrent salt writes were lost", lost, rounds)
}

// openForWriting acts as another program that rewrites the file in place.
func openForWriting(t *testing.T, n node, flags int) *os.File {
	t.Helper()
	writer, err := os.OpenFile(n.path, os.O_WRONLY|flags, 0)
	require.NoError(t, err)
	return writer
}

type result struct {
	changed bool
	err     error
}

// announceAside runs Announce concurrently, and returns when it waits for the other writer.
func announceAside(t *testing.T, n node) <-chan result {
	t.Helper()
	done := make(chan result, 1)
	go func() {
		changed, err := n.store.Announce(t.Context(), staged)
		done <- result{changed, err}
	}()
	synctest.Wait()
	require.Empty(t, done, "it must wait")
	return done
}

// Another writer has truncated the file, or has written a part of it.
func TestAnnounceWaitsForAnotherWriter(t *testing.T) {
	t.Parallel()
	for part, rest := range map[string]string{"": "roles: x\nnew: y\n", "roles: [x": "]\nnew: y\n", "roles: x\n": "new: y\n"} {
		n := newNode(t, "old: x\n")
		synctest.Test(t, func(t *testing.T) {
			writer := openForWriting(t, n, os.O_TRUNC)
			_, err := writer.WriteString(part)
			require.NoError(t, err)
			done := announceAside(t, n)
			_, err = writer.WriteString(rest)
			require.NoError(t, err)
			require.NoError(t, writer.Close())
			require.Equal(t, result{true, nil}, <-done)
		})
		require.Equal(t, part+rest+stagedText, n.content(t))
	}
}

// A truncated file must not be mistaken for one without a busy grain.
func TestBusyWaitsForAWriterThatHasTruncatedTheFile(t *testing.T) {
	t.Parallel()
	n := newNode(t, "update_in_progress: true\n")
	synctest.Test(t, func(t *testing.T) {
		writer := openForWriting(t, n, os.O_TRUNC)
		done := make(chan string, 1)
		go func() {
			reason, err := n.store.Busy(t.Context())
			assert.NoError(t, err)
			done <- reason
		}()
		synctest.Wait()
		require.Empty(t, done, "it must wait")
		_, err := writer.WriteString("update_in_progress: true\nnew: y\n")
		require.NoError(t, err)
		require.NoError(t, writer.Close())
		require.Equal(t, "update_in_progress", <-done)
	})
}

func TestAnnounceGivesUpOnAWriterThatStays(t *testing.T) {
	t.Parallel()
	n := newNode(t, "roles: x\n")
	synctest.Test(t, func(t *testing.T) {
		writer := openForWriting(t, n, 0)
		before := n.state(t)
		changed, err := n.store.Announce(t.Context(), staged)
		require.ErrorIs(t, err, nodefile.ErrConflict)
		require.False(t, changed)
		require.Equal(t, before, n.state(t))
		require.NoError(t, writer.Close())
	})
}

func TestAFullDiskLeavesTheGrains(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread has its own mount
	require.NoError(t, syscall.Unshare(syscall.CLONE_NEWNS|syscall.CLONE_FS))
	require.NoError(t, syscall.Mount("none", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""))
	n := emptyNode(t)
	dir := filepath.Dir(n.path)
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", 0, "size=16k,mode=755"))
	defer func() { assert.NoError(t, syscall.Unmount(dir, 0)) }()
	require.NoError(t, os.WriteFile(n.path, []byte("roles: x\n# "+strings.Repeat("x", 9000)+"\n"), 0o644))
	before := n.state(t)
	_, err := n.store.Announce(t.Context(), staged)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, before, n.state(t))
}

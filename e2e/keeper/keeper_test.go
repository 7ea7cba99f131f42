// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/e2e/keeper"
)

// ownerRole makes the test binary the owner of a node instead of running tests; its value is the keeper program.
const ownerRole = "KEEPER_TEST_OWNER"

func TestMain(m *testing.M) {
	if program := os.Getenv(ownerRole); program != "" {
		own(program)
	}
	goleak.VerifyTestMain(m)
}

// own keeps a node with an orphan, prints its directory, and waits to be killed.
func own(program string) {
	k, err := keeper.Start(program)
	if err == nil {
		_, err = k.Run(shell(k, "setsid sleep 1000 & exit 0"))
	}
	if err != nil {
		panic(err)
	}
	fmt.Println(k.Dir)
	select {}
}

// build compiles cmd/keeper.
func build(t *testing.T) string {
	t.Helper()
	require.Zero(t, os.Geteuid(), "needs root: the keeper makes namespaces and cgroups")
	program := filepath.Join(t.TempDir(), "keeper")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../cmd/keeper").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// start starts a node in the test's own directory: a broken Sweep then cannot remove other nodes.
func start(t *testing.T) *keeper.Keeper {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	k, err := keeper.Start(build(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// shell returns a script that writes to k.Dir/out; the variable NODE marks its processes so that the test finds them.
func shell(k *keeper.Keeper, script string) keeper.Command {
	out := filepath.Join(k.Dir, "out")
	return keeper.Command{
		Argv: []string{"/bin/sh", "-c", script}, Env: []string{"NODE=" + k.Dir, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Stdout: out, Stderr: out,
	}
}

// left lists the node's remains: processes by their environment, mounts, cgroups, the directory.
func left(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, environ := range environs {
		if text, err := os.ReadFile(environ); err == nil && strings.Contains(string(text), "NODE="+dir) {
			found = append(found, environ)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	if strings.Contains(string(mounts), dir) {
		found = append(found, "mount")
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(dir))
	require.NoError(t, err)
	found = append(found, groups...)
	if _, err := os.Stat(dir); err == nil {
		found = append(found, dir)
	}
	return found
}

func TestRunTellsHowProcessesEnd(t *testing.T) {
	k := start(t)
	ends := []struct {
		script string
		want   keeper.Exit
	}{
		{"exit 0", keeper.Exit{}},
		{"exit 7", keeper.Exit{Code: 7}},
		{"kill -9 $$", keeper.Exit{Code: -1, Signal: 9}},
	}
	for _, end := range ends {
		p, err := k.Run(shell(k, end.script))
		require.NoError(t, err)
		got := p.Wait()
		assert.Positive(t, got.MaxRSS, end.script)
		got.MaxRSS, got.CPU = 0, 0
		assert.Equal(t, end.want, got, end.script)
		assert.ErrorContains(t, p.Signal(syscall.SIGTERM), "no such process", "after the end")
	}
	_, err := k.Run(keeper.Command{Argv: []string{"/nowhere"}, Stdout: os.DevNull, Stderr: os.DevNull})
	require.ErrorContains(t, err, "/nowhere: no such file or directory")
	_, err = k.Run(keeper.Command{Argv: []string{"sh"}})
	require.ErrorContains(t, err, "not an absolute path")
}

// Sixty systems that boot at once need some 500 inotify instances, and the kernel's default is 128.
func TestManyNodesMayWatchFiles(t *testing.T) {
	start(t)
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	require.NoError(t, err)
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, limit, 8192)
}

func TestSignalReachesTheProcess(t *testing.T) {
	k := start(t)
	p, err := k.Run(keeper.Command{Argv: []string{"/bin/sleep", "1000"}, Stdout: os.DevNull, Stderr: os.DevNull})
	require.NoError(t, err)
	require.NoError(t, p.Signal(syscall.SIGTERM))
	assert.Equal(t, 15, p.Wait().Signal)
}

func TestNodeHasItsOwnProcessesAndMounts(t *testing.T) {
	k := start(t)
	p, err := k.Run(shell(k, `
		mkdir $NODE/mnt && mount -t tmpfs none $NODE/mnt && touch $NODE/mnt/inside
		grep -c ' /proc/sys/kernel/panic ' /proc/self/mountinfo
		ls $NODE/mnt; ls -A /run/containerd /var/log/containers; ls -d /proc/[0-9]*`))
	require.NoError(t, err)
	require.Zero(t, p.Wait().Code)
	text, err := os.ReadFile(filepath.Join(k.Dir, "out"))
	require.NoError(t, err)
	lines := strings.Fields(string(text))
	// the test does not write to it: if it were the host's, that would change the machine
	assert.Equal(t, []string{"1", "inside", "/run/containerd:", "/var/log/containers:", "/proc/1"}, lines[:5])
	assert.Less(t, len(lines), 10, "sees the host's processes")
	assert.NoFileExists(t, filepath.Join(k.Dir, "mnt/inside"), "the mount is seen on the host")
	assert.FileExists(t, filepath.Join("/sys/fs/cgroup/pids", filepath.Base(k.Dir), "cgroup.procs"))
}

// Close ends orphans of orphans and removes mounts and cgroups of the node; the host's mount namespace has no reference
// to them.
func TestCloseLeavesNothing(t *testing.T) {
	k := start(t)
	p, err := k.Run(shell(k, `
		set -e
		for g in /sys/fs/cgroup/*/`+filepath.Base(k.Dir)+`; do mkdir -p $g/kubepods/pod1; done
		mkdir $NODE/mnt && mount -t tmpfs none $NODE/mnt
		(trap '' TERM; setsid sh -c 'echo $$ >/sys/fs/cgroup/pids/`+filepath.Base(k.Dir)+`/kubepods/pod1/cgroup.procs; echo up; sleep 1000; :' &)
		until grep -q up $NODE/out; do :; done`))
	require.NoError(t, err)
	require.Zero(t, p.Wait().Code)
	require.NoError(t, k.Close())
	assert.Empty(t, left(t, k.Dir))
	_, err = k.Run(shell(k, "exit 0"))
	assert.ErrorIs(t, err, keeper.ErrGone)
}

func TestKilledOwnerLeavesNothing(t *testing.T) {
	owner := exec.CommandContext(t.Context(), os.Args[0])
	owner.Env = append(os.Environ(), ownerRole+"="+build(t))
	out, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	line := make([]byte, 200)
	n, err := out.Read(line)
	require.NoError(t, err)
	dir := strings.TrimSpace(string(line[:n]))
	require.NotEmpty(t, left(t, dir))
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()
	assert.Eventually(t, func() bool { return len(left(t, dir)) == 0 }, 10*time.Minute, 10*time.Millisecond)
}

func TestSweepRemovesWhatAKilledKeeperLeft(t *testing.T) {
	used := start(t)
	killed, err := keeper.Start(build(t))
	require.NoError(t, err)
	p, err := killed.Run(shell(killed, "setsid sleep 1000 & sleep 1000"))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(killed.Pid(), syscall.SIGKILL))
	assert.True(t, p.Wait().Missing)
	require.Error(t, killed.Close(), "the keeper was killed")
	assert.NotEmpty(t, left(t, killed.Dir), strconv.Itoa(killed.Pid()))

	assert.Eventually(t, func() bool {
		_, err := keeper.Sweep()
		return assert.NoError(t, err) && len(left(t, killed.Dir)) == 0
	}, 10*time.Minute, 10*time.Millisecond)
	assert.DirExists(t, used.Dir, "a node in use was swept")
	q, err := used.Run(shell(used, "exit 0"))
	require.NoError(t, err)
	assert.Zero(t, q.Wait().Code)
}

// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sandboxed is a process that sees one of the directories read-only, and of all
// users and groups root alone, as the hardened daemon does.
func sandboxed(t *testing.T, readOnly string) (proc string) {
	t.Helper()
	only := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	child := exec.CommandContext(context.WithoutCancel(t.Context()), "/bin/sh", "-euc",
		`mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; echo ready; cat`, "sh", readOnly)
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: only, GidMappings: only,
	}
	end, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	child.Stderr = os.Stderr
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		assert.NoError(t, end.Close())
		assert.NoError(t, child.Wait())
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return filepath.Join("/proc", strconv.Itoa(child.Process.Pid))
}

func TestDoctorSeesWhatTheUnitForbids(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	forbidden, allowed := filepath.Join(dir, "forbidden"), filepath.Join(dir, "allowed")
	ours, others := filepath.Join(allowed, "ours.yaml"), filepath.Join(allowed, "others.yaml")
	require.NoError(t, os.Mkdir(forbidden, 0o700))
	require.NoError(t, os.Mkdir(allowed, 0o700))
	for file, group := range map[string]int{ours: 0, others: 42} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Chown(file, 0, group))
	}
	daemon := sandboxed(t, forbidden)
	missing := filepath.Join(dir, "missing")

	assert.Equal(t, []Finding{ok("unit", "the daemon can write all its files")},
		checkSandbox(daemon, []string{allowed, missing}, []string{ours, missing}))
	found := checkSandbox(daemon, []string{forbidden, allowed}, []string{others, ours})
	require.Len(t, found, 2)
	assert.Equal(t, Fail, found[0].Verdict)
	assert.Equal(t, forbidden+": read-only for the daemon", found[0].Detail)
	assert.Contains(t, found[0].Remedy, "ReadWritePaths="+forbidden+" below [Service]")
	assert.Equal(t, Warn, found[1].Verdict)
	assert.Equal(t, others+": the daemon cannot keep the group 42 of the file, so it does not write it", found[1].Detail)
	assert.Contains(t, found[1].Remedy, "chgrp root "+others)

	const unlimited = "/proc/self"
	assert.Equal(t, []Finding{ok("unit", "the daemon can write all its files")},
		checkSandbox(unlimited, []string{forbidden, allowed}, []string{others, ours}))
}

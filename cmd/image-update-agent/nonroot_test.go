// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nobody is a user that owns nothing here.
const nobody = 65534

// asNobody runs the program as somebody who may not use what has the mode 0 or is
// root's, and returns how it ends.
func asNobody(t *testing.T, args ...string) (code int, errs string) {
	t.Helper()
	path, err := exec.LookPath("image-update-agent")
	require.NoError(t, err)
	program := exec.CommandContext(t.Context(), path, args...)
	if os.Geteuid() == 0 {
		// Made by testscript.Main for this process, and closed to others.
		require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755))
		program.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var text bytes.Buffer
	program.Stderr = &text
	_ = program.Run()
	return program.ProcessState.ExitCode(), text.String()
}

// Without root the error says so, and what to do, not that there is no daemon.
func TestWithoutRootTheErrorNamesTheRemedy(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	run, manifests := filepath.Join(root, "run/image-update-agent"), filepath.Join(root, "etc/kubernetes/manifests")
	for _, dir := range []string{run, manifests} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755)) // it is closed to nobody
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(run, "agent.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	require.NoError(t, os.Chmod(filepath.Join(run, "agent.sock"), 0))
	require.NoError(t, os.Chmod(manifests, 0))

	const socket = "agent.sock: permission denied\n"
	const bus = ", or call it over D-Bus, where polkit decides: see D-BUS in image-update-agent(8)"
	for _, c := range []struct {
		args       []string
		want, hint string
	}{
		{[]string{"check"}, socket, bus},
		{[]string{"apply", "velum"}, socket, bus},
		{[]string{"rollback", "velum"}, socket, bus},
		{[]string{"hold", "--all"}, socket, bus},
		{[]string{"resume", "--all"}, socket, bus},
		{[]string{"reload"}, socket, ""},
		{[]string{"run", "--once"}, "permission denied\n", ""},
		{[]string{"plan"}, "permission denied\n", "; `image-update-agent status` needs no root"},
		{[]string{"put-back"}, "permission denied\n", ""},
	} {
		code, errs := asNobody(t, append(c.args, "--root", root)...)
		assert.Equal(t, exitFailed, code, c.args)
		assert.Contains(t, errs, c.want, c.args)
		assert.Contains(t, errs, "\nimage-update-agent: hint: run it as root"+c.hint+"\n", c.args)
		assert.NotContains(t, errs, "no daemon", c.args)
	}
}

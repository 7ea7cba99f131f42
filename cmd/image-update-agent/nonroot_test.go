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
func asNobody(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	path, err := exec.LookPath("image-update-agent")
	require.NoError(t, err)
	program := exec.CommandContext(t.Context(), path, args...)
	if os.Geteuid() == 0 {
		// Made by testscript.Main for this process, and closed to others.
		require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755))
		program.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var shown, text bytes.Buffer
	program.Stdout, program.Stderr = &shown, &text
	_ = program.Run()
	return program.ProcessState.ExitCode(), shown.String(), text.String()
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
	const bus = ", or call it over D-Bus, where polkit decides: see image-update-agent-dbus(5)"
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
		code, _, errs := asNobody(t, append(c.args, "--root", root)...)
		assert.Equal(t, exitFailed, code, c.args)
		assert.Contains(t, errs, c.want, c.args)
		assert.Contains(t, errs, "\nimage-update-agent: hint: run it as root"+c.hint+"\n", c.args)
		assert.NotContains(t, errs, "no daemon", c.args)
	}
}

// What only root may read is not known to others: it is neither in order nor lost.
func TestWithoutRootWhatCannotBeReadIsNoAnswer(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755)) // it is closed to nobody
	put(t, root, map[string]string{"etc/kubernetes/manifests/velum.yaml": "kind: Pod\n"})
	does(t, "local-registry", "enable", "registry.example.com", "--write", "--root", root)
	const asRoot = "\n         -> run doctor as root\n"
	for _, closed := range []string{
		"etc/containerd/certs.d/registry.example.com/hosts.toml", "etc/containerd/certs.d/registry.example.com",
	} {
		require.NoError(t, os.Chmod(filepath.Join(root, closed), 0))
		code, out, errs := asNobody(t, "local-registry", "show", "--root", root)
		assert.Equal(t, exitFailed, code, out)
		assert.Contains(t, errs, closed+": permission denied\nimage-update-agent: hint: run it as root\n")
		_, out, _ = asNobody(t, "doctor", "--root", root)
		assert.Regexp(t, `\nwarning  local registry: not checked: .*`+closed+`: permission denied`+asRoot, out)
	}

	require.NoError(t, os.Chmod(filepath.Join(root, "etc/kubernetes/manifests"), 0))
	_, out, _ := asNobody(t, "doctor", "--root", root)
	assert.Regexp(t, `\nwarning  set aside: not checked: .*/manifests: permission denied`+asRoot, out)

	put(t, root, map[string]string{ourConfig: "interval: 6h\n"})
	require.NoError(t, os.Chmod(filepath.Join(root, ourConfig), 0))
	_, out, _ = asNobody(t, "doctor", "--root", root)
	assert.Regexp(t, `^failed   configuration: .*/config.yaml: permission denied`+asRoot, out)
	code, _, errs := asNobody(t, "config", "check", "--root", root)
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "\nimage-update-agent: hint: run it as root\n", "no method of the bus does this")
}

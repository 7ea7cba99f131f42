// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/systemd"
)

// The types of ExecStartEx and EnvironmentFiles: a(sasasttttuii), a(sb).
type (
	execStart struct {
		Path         string
		Argv, Flags  []string
		B, BM, E, EM uint64
		PID          uint32
		Code, Status int32
	}
	envFile struct {
		Path    string
		MayMiss bool
	}
)

func command(words ...string) []execStart { return []execStart{{Path: words[0], Argv: words}} }

// kubeadmService is the unit of kubeadm's packages, as the manager describes it.
func kubeadmService() map[string]any {
	return map[string]any{
		"Unit.LoadState": "loaded", "Service.MainPID": uint32(0),
		"Service.ExecStartEx": command("/usr/bin/kubelet", "$KUBELET_CONFIG_ARGS", "$KUBELET_KUBEADM_ARGS", "$KUBELET_EXTRA_ARGS"),
		"Service.Environment": []string{"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"},
		"Service.EnvironmentFiles": []envFile{
			{"/var/lib/kubelet/kubeadm-flags.env", true}, {"/etc/sysconfig/kubelet", true},
		},
		"Service.UnsetEnvironment": []string{},
	}
}

func readCommand(t *testing.T, files map[string]string, properties map[string]any) platform.Command {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	all := kubeadmService()
	maps.Copy(all, properties)
	b := bustest.Start(t, "")
	serveUnit(t, b, "kubelet_2eservice", all)
	return systemd.ReadCommand(t.Context(), b.Address, root, "kubelet.service")
}

// Variables are replaced as by systemd (src/basic/env-util.c, replace_env_argv; src/basic/env-file.c).
func TestCommandOfAUnit(t *testing.T) {
	t.Parallel()
	kubelet := func(words string) []string {
		return strings.Fields("/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml " + words)
	}
	const flags, extra = "/var/lib/kubelet/kubeadm-flags.env", "/etc/sysconfig/kubelet"
	odd := map[string]any{"Service.Environment": []string{"ONE=1 2"}}
	for name, c := range map[string]struct {
		files map[string]string
		exec  any
		more  map[string]any
		want  []string
	}{
		"kubeadm":            {map[string]string{flags: "KUBELET_KUBEADM_ARGS=\"--a=b --c\"\n"}, nil, nil, kubelet("--a=b --c")},
		"no files":           {nil, nil, nil, kubelet("")},
		"of the admin":       {map[string]string{extra: "# mine\n; x\n\n KUBELET_EXTRA_ARGS = --v=2 --d \n"}, nil, nil, kubelet("--v=2 --d")},
		"in single quotes":   {map[string]string{extra: "KUBELET_EXTRA_ARGS='--v=\"2\"'\nKUBELET_EXTRA_ARGS='--v=2'"}, nil, nil, kubelet("--v=2")},
		"empty":              {map[string]string{extra: "KUBELET_EXTRA_ARGS=\n"}, nil, nil, kubelet("")},
		"a file wins":        {map[string]string{extra: "KUBELET_CONFIG_ARGS=--config=/k\n"}, nil, nil, []string{"/usr/bin/kubelet", "--config=/k"}},
		"unset":              {nil, nil, map[string]any{"Service.UnsetEnvironment": []string{"KUBELET_CONFIG_ARGS"}}, []string{"/usr/bin/kubelet"}},
		"alone and in words": {nil, command("/p", "$ONE", "${ONE}", "x${ONE}y", "$NONE", "${NONE}", "$$ONE", "$${ONE}", "x$ONE", "$"), odd, []string{"/p", "1", "2", "1 2", "x1 2y", "", "$ONE", "${ONE}", "x$ONE", "$"}},
		"no variables":       {nil, []execStart{{Path: "/p", Argv: []string{"p", "$ONE"}, Flags: []string{"no-env-expand"}}}, odd, []string{"/p", "$ONE"}},
		"its own argv[0]":    {nil, []execStart{{Path: "/usr/bin/kubelet", Argv: []string{"other", "-a"}}}, nil, []string{"/usr/bin/kubelet", "-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			more := map[string]any{}
			maps.Copy(more, c.more)
			if c.exec != nil {
				more["Service.ExecStartEx"] = c.exec
			}
			got := readCommand(t, c.files, more)
			require.NoError(t, got.Err)
			assert.Equal(t, c.want, got.Words)
			assert.Empty(t, got.Running)
		})
	}
}

// The running process knows its arguments, also where those of the unit are not known.
func TestArgumentsOfTheRunningProcess(t *testing.T) {
	t.Parallel()
	running := map[string]any{"Service.MainPID": uint32(4711)}
	got := readCommand(t, map[string]string{"proc/4711/cmdline": "/opt/kubelet\x00--a=b c\x00\x00", "etc/sysconfig/kubelet": "A=\\x\n"}, running)
	assert.Equal(t, []string{"/opt/kubelet", "--a=b c", ""}, got.Running)
	require.ErrorContains(t, got.Err, "cannot parse the line with A")
	assert.Empty(t, readCommand(t, nil, running).Running, "it has ended")
}

func TestCommandsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	const extra = "etc/sysconfig/kubelet"
	for name, c := range map[string]struct {
		files      map[string]string
		properties map[string]any
		want       string
	}{
		"no unit":          {nil, map[string]any{"Unit.LoadState": "not-found"}, "not-found"},
		"several commands": {nil, map[string]any{"Service.ExecStartEx": append(command("/a"), command("/b")...)}, "2 commands"},
		"no command":       {nil, map[string]any{"Service.ExecStartEx": []execStart{}}, "0 commands"},
		"an escape":        {map[string]string{extra: `A="a\"b"`}, nil, "cannot parse the line with A"},
		"two quotes":       {map[string]string{extra: `A="a" 'b'`}, nil, "cannot parse the line with A"},
		"an open quote":    {map[string]string{extra: "A=\"a\nb\""}, nil, "cannot parse the line with A"},
		"a long line":      {map[string]string{extra: "A=a\\\nb"}, nil, "continued lines are not supported"},
		"a comment":        {map[string]string{extra: "# a\\\nA=b"}, nil, "continued lines are not supported"},
		"a shell's":        {map[string]string{extra: "export A=b"}, nil, "cannot parse the line with export A"},
		"words in quotes":  {nil, map[string]any{"Service.Environment": []string{"KUBELET_CONFIG_ARGS=--a='b c'"}}, "cannot split $KUBELET_CONFIG_ARGS"},
		"a pattern":        {nil, map[string]any{"Service.EnvironmentFiles": []envFile{{"/etc/*.env", true}}}, "patterns are not supported"},
		"a missing file":   {nil, map[string]any{"Service.EnvironmentFiles": []envFile{{"/etc/none", false}}}, "etc/none: no such file"},
		"a large file":     {map[string]string{extra: strings.Repeat("#", 256<<10+1)}, nil, extra},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := readCommand(t, c.files, c.properties)
			require.ErrorContains(t, got.Err, c.want)
			assert.Empty(t, got.Words)
			assert.Empty(t, got.Environment)
		})
	}
	got := systemd.ReadCommand(t.Context(), bus.At(filepath.Join(t.TempDir(), "none")), t.TempDir(), "kubelet.service")
	require.ErrorIs(t, got.Err, bus.ErrNone)
	got = systemd.ReadCommand(t.Context(), bustest.Start(t, "").Address, t.TempDir(), "kubelet.service")
	require.ErrorIs(t, got.Err, bus.ErrAbsent)
}

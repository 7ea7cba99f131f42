// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
)

// patience is more than any of these programs needs on a loaded machine.
const patience = time.Minute

// script creates a program of a host in a test directory.
func script(t *testing.T, text string) (p Program, out *bytes.Buffer) {
	t.Helper()
	root := t.TempDir()
	path := filepath.Join(root, "opt/hook")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	agenttest.WriteProgram(t, path, "#!/bin/sh\n"+text+"\n")
	out = new(bytes.Buffer)
	return Program{Root: root, Path: path, Output: out, Timeout: patience}, out
}

func TestProgramGetsOnlyItsInput(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://user:secret@proxy:3128")
	p, out := script(t, `echo "$0 $#"; cat; env | sort; pwd; echo said >&2`)
	p.Input = []byte("{\"a\":1}\n")
	require.NoError(t, p.Run(t.Context()))
	assert.NotContains(t, out.String(), "secret")
	lines := strings.Split(out.String(), "\n")
	assert.Equal(t, []string{p.Path + " 0", `{"a":1}`}, lines[:2])
	assert.Contains(t, lines, "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	assert.Contains(t, lines, "PWD=/")
	assert.Contains(t, lines, "said")
}

func TestArgumentsArePassedWithoutAShell(t *testing.T) {
	t.Parallel()
	p, out := script(t, `printf '<%s>' "$@"`)
	p.Args = []string{"a b", "$(id)", ";x"}
	require.NoError(t, p.Run(t.Context()))
	assert.Equal(t, "<a b><$(id)><;x>", out.String())
}

// A program that does not read its input, and one that fails.
func TestExitOfAProgram(t *testing.T) {
	t.Parallel()
	p, _ := script(t, `exit 0`)
	p.Input = bytes.Repeat([]byte("x"), 1<<20)
	require.NoError(t, p.Run(t.Context()))
	p, out := script(t, `echo no luck; exit 3`)
	require.ErrorContains(t, p.Run(t.Context()), p.Path+": exit status 3")
	assert.Equal(t, "no luck\n", out.String())
	p, _ = script(t, `kill -9 $$`)
	require.ErrorContains(t, p.Run(t.Context()), "signal: killed")
	p, _ = script(t, "")
	agenttest.WriteProgram(t, p.Path, "#!/no/such/shell\n")
	require.ErrorIs(t, p.Run(t.Context()), fs.ErrNotExist)
}

// gone waits for the end of the child of a program, which has left its number in a file beside it.
func gone(t *testing.T, p Program, isBegun bool) {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(filepath.Dir(p.Path), "pid"))
	if !isBegun && (err != nil || len(pid) == 0) {
		return // killed before it began
	}
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ") // no process may reap it here
	}, patience, 10*time.Millisecond)
}

// A program that hangs is killed, with its children, even those that ignore signals.
func TestHangingProgramIsKilled(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"asked":        `sleep 1000 & echo $! >"$(dirname "$0")/pid"; echo up; wait`,
		"does not end": `trap '' TERM; sleep 1000 & echo $! >"$(dirname "$0")/pid"; echo up; while :; do wait; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := script(t, text)
			p.Timeout = 500 * time.Millisecond
			if name == "does not end" {
				p.Timeout = time.Second
			}
			require.ErrorContains(t, p.Run(t.Context()), "did not end within")
			gone(t, p, false)
		})
	}
	t.Run("left behind", func(t *testing.T) {
		t.Parallel()
		p, _ := script(t, `sleep 1000 >/dev/null 2>&1 & echo $! >"$(dirname "$0")/pid"`)
		require.NoError(t, p.Run(t.Context()))
		gone(t, p, true)
	})
	t.Run("asked by the service manager", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		p, _ := script(t, `echo up; exec sleep 1000`)
		p.Output = writerFunc(func() { cancel() })
		require.ErrorIs(t, p.Run(ctx), context.Canceled)
	})
}

type writerFunc func()

func (w writerFunc) Write(b []byte) (int, error) { w(); return len(b), nil }

// unsafe are changes by others of a program, or of its parent directories.
var unsafe = map[string]struct {
	make func(t *testing.T, p *Program)
	want string
}{
	"not there":             {func(t *testing.T, p *Program) { require.NoError(t, os.Remove(p.Path)) }, "no such file"},
	"a directory":           {func(_ *testing.T, p *Program) { p.Path = filepath.Dir(p.Path) }, "not a file"},
	"below a file":          {func(_ *testing.T, p *Program) { p.Path += "/x" }, "not a directory"},
	"not executable":        {func(t *testing.T, p *Program) { require.NoError(t, os.Chmod(p.Path, 0o644)) }, "not executable (-rw-r--r--)"},
	"writable by others":    {func(t *testing.T, p *Program) { require.NoError(t, os.Chmod(p.Path, 0o757)) }, "unsafe: others may write to"},
	"writable by the group": {func(t *testing.T, p *Program) { require.NoError(t, os.Chmod(p.Path, 0o775)) }, "unsafe: others may write to"},
	"another's":             {func(t *testing.T, p *Program) { require.NoError(t, os.Chown(p.Path, 4711, 0)) }, "belongs to user 4711"},
	"in a directory of another's": {
		func(t *testing.T, p *Program) { require.NoError(t, os.Chown(filepath.Dir(p.Path), 4711, 0)) }, "belongs to user 4711",
	},
	"in a sticky directory of all": {
		func(t *testing.T, p *Program) {
			require.NoError(t, os.Chmod(filepath.Dir(p.Path), 0o777|fs.ModeSticky))
		}, "others may write to",
	},
	"below one": {func(t *testing.T, p *Program) { require.NoError(t, os.Chmod(p.Root, 0o777)) }, "others may write to"},
	"a symlink to one": {func(t *testing.T, p *Program) {
		require.NoError(t, os.Chmod(p.Path, 0o757))
		link(t, p, "opt/hook")
	}, "others may write to"},
	"a symlink of another's": {func(t *testing.T, p *Program) {
		link(t, p, "opt/hook")
		require.NoError(t, os.Lchown(p.Path, 4711, 0))
	}, "belongs to user 4711"},
	"through a directory that others write": {func(t *testing.T, p *Program) {
		require.NoError(t, os.Mkdir(filepath.Join(p.Root, "tmp"), 0o777))
		require.NoError(t, os.Chmod(filepath.Join(p.Root, "tmp"), 0o777|fs.ModeSticky))
		require.NoError(t, os.Symlink("../opt", filepath.Join(p.Root, "tmp/dir")))
		link(t, p, "/tmp/dir/hook")
	}, "others may write to"},
	"a circle": {func(t *testing.T, p *Program) { link(t, p, "link") }, "too many symlinks"},
	"nowhere":  {func(t *testing.T, p *Program) { link(t, p, "/no") }, "no such file"},
}

// link makes a program a symlink in the root.
func link(t *testing.T, p *Program, to string) {
	t.Helper()
	p.Path = filepath.Join(p.Root, "link")
	require.NoError(t, os.Symlink(to, p.Path))
}

func TestUnsafeProgramIsNotRun(t *testing.T) {
	t.Parallel()
	for name, c := range unsafe {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, out := script(t, `echo run`)
			c.make(t, &p)
			_, err := p.Check()
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, p.Path, "it is named as it was configured")
			require.Error(t, p.Run(t.Context()))
			assert.Empty(t, out.String())
		})
	}
}

func TestSymlinksAreFollowed(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"opt/hook", "/opt/hook", "../../opt/./hook", "opt/../opt//hook"} {
		p, out := script(t, `echo run`)
		file := p.Path
		link(t, &p, to)
		got, err := p.Check()
		require.NoError(t, err, to)
		assert.Equal(t, file, got, to)
		require.NoError(t, p.Run(t.Context()))
		assert.Equal(t, "run\n", out.String())
	}
	p, _ := script(t, `echo run`)
	require.NoError(t, os.Symlink("/opt", filepath.Join(p.Root, "usr")))
	p.Path = filepath.Join(p.Root, "usr/hook")
	_, err := p.Check()
	require.NoError(t, err)
	_, err = Program{Root: "/", Path: "/bin/sh"}.Check()
	require.NoError(t, err, "the machine's own")
}

// SPDX-License-Identifier: Apache-2.0

package story

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Skopeo runs a command block of the page unchanged. The page's name for the registry stands for the node's own.
func Skopeo(t *testing.T, n *node.Node, dir, block string) (string, error) {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "registries.conf")
	require.NoError(t, os.WriteFile(conf, []byte("unqualified-search-registries = []\n[[registry]]\nprefix = \""+DocHost+
		"\"\nlocation = \""+n.Registry.Host+"\"\ninsecure = true\n"), 0o600))
	for line := range strings.Lines(block) {
		words := strings.Fields(line)
		require.Equal(t, "skopeo", words[0], line)
		argv := []string{"--insecure-policy", "--registries-conf", conf, words[1]}
		if strings.Contains(line, " docker://127.") || words[1] == "sync" {
			argv = append(argv, "--dest-tls-verify=false") // the mirror
		}
		cmd := exec.CommandContext(t.Context(), "skopeo", append(argv, words[2:]...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return string(out), err
		}
	}
	return "", nil
}

// Hang makes the registry hold requests of a kind; asked is closed at the first one.
func Hang(n *node.Node, kind node.Kind) (asked <-chan struct{}) {
	first := make(chan struct{})
	var once sync.Once
	wait := node.Hang(kind)
	n.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/"+string(kind)) {
			once.Do(func() { close(first) })
		}
		return wait(w, r)
	})
	return first
}

// HoldPulls holds CRI's pulls until pass is called, and with them each apply under pull policy IfNotPresent. Under
// Always the agent names the digest after a few seconds.
func HoldPulls(n *node.Node) (pass func()) {
	passed := make(chan struct{})
	n.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.UserAgent(), CriAgent) {
			select {
			case <-passed:
			case <-r.Context().Done():
			}
		}
		return false
	})
	return func() { close(passed) }
}

// Output returns the output file of a program of the node.
func Output(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// Hangup makes the daemon reload its configuration, and waits until it has.
func Hangup(t *testing.T, n *node.Node, daemon *node.Process) {
	t.Helper()
	count := func() int { return strings.Count(Output(t, daemon.Stderr), "configuration ") }
	before := count()
	daemon.Signal(syscall.SIGHUP)
	node.Eventually(t, "reload", Ready, func() error {
		if count() == before {
			return errors.New("nothing said")
		}
		return nil
	})
}

// Shell runs a script in dir that must succeed, and returns its output without the last newline.
func Shell(tb testing.TB, dir, script string, args ...string) string {
	tb.Helper()
	argv := append([]string{"-euo", "pipefail", "-c", script, "bash"}, args...)
	command := exec.CommandContext(tb.Context(), "bash", argv...)
	command.Dir = dir
	var said strings.Builder
	command.Stderr = &said
	out, err := command.Output()
	require.NoError(tb, err, "%s: %s%s", script, out, said.String())
	return strings.TrimSuffix(string(out), "\n")
}

// Checkout returns the directory of the project.
func Checkout(tb testing.TB) string {
	tb.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(tb, err)
	return dir
}

// Glob finds the files of a directory that match a pattern.
func Glob(tb testing.TB, dir, pattern string) []string {
	tb.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(tb, err)
	return found
}

// Read reads a file of a directory.
func Read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(text)
}

// Program writes a shell script named image-update-agent to a new directory.
func Program(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	agenttest.WriteProgram(t, filepath.Join(dir, "image-update-agent"), "#!/bin/sh\n"+script)
	return dir
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/face/metrics"
	"github.com/kubic-project/image-update-agent/internal/registry"
)

// Nobody has locked another directory, and what was held or denied is not in it.
func TestReloadMovesNoDirectory(t *testing.T) {
	t.Parallel()
	for key, moved := range map[string]string{"stateDir": "/var/lib/elsewhere", "runtimeDir": "/run/elsewhere"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			a := &app{streams: streams{nil, io.Discard, io.Discard}, root: root}
			began, err := a.settings()
			require.NoError(t, err)
			put(t, root, map[string]string{ourConfig: key + ": " + moved + "\n"})
			r := &reloader{app: a, began: began}
			_, err = r.reload(t.Context(), nil, slog.New(slog.DiscardHandler))
			require.ErrorContains(t, err, " to "+filepath.Join(root, moved)+": restart the daemon")
			require.ErrorContains(t, err, key+": changed from ")
			assert.NoDirExists(t, filepath.Join(root, moved))
		})
	}
}

// TestPackagesDoLittleAtTheStart limits what each package of the module allocates before main: every command, and each
// start of a program by systemd, waits for it. What needs more is made on first use, as internal/base/lazyregexp does.
func TestPackagesDoLittleAtTheStart(t *testing.T) {
	t.Parallel()
	const most = 450 // tags, which may import only the standard library, has 394, and 401 without inlining
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^init (\S+) @.*, (\d+) allocs$`)
	found := 0
	for _, m := range line.FindAllStringSubmatch(string(out), -1) {
		if !strings.HasPrefix(m[1], "github.com/kubic-project/") || strings.Contains(m[1], "/tools/") {
			continue
		}
		found++
		allocations, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		assert.LessOrEqual(t, allocations, most, m[1])
	}
	require.Greater(t, found, 10, "%s", out)
}

// What was sent before a reload was sent, and the port moves with it.
func TestAReloadLosesNoCount(t *testing.T) {
	t.Parallel()
	wire := func(before registry.Counts) *wiring {
		return &wiring{registry: registry.New(registry.Options{}), before: before}
	}
	port := metrics.NewPort(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); port.Run(ctx) }()
	var current atomic.Pointer[wiring]
	current.Store(wire(registry.Counts{Requests: 7, Tokens: 2, Pulls: 3, Connections: 4, Received: 5, Sent: 6}))
	take := taking(&current, port)
	for range 3 {
		take(wire(registry.Counts{}))
		assert.Equal(t, registry.Counts{Requests: 7, Tokens: 2, Pulls: 3, Connections: 4, Received: 5, Sent: 6}, current.Load().sent())
	}
	one := registry.Counts{Requests: 1, Tokens: 1, Pulls: 1, Connections: 1, Received: 1, Sent: 1}
	assert.Equal(t, registry.Counts{Requests: 2, Tokens: 2, Pulls: 2, Connections: 2, Received: 2, Sent: 2}, one.Plus(one))
	end()
	<-ended
	current.Load().close()
}

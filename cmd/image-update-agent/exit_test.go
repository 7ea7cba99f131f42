// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An interrupted verb that waits for the daemon says that the daemon does not
// stop for it.
func TestWhatAnInterruptEnds(t *testing.T) {
	t.Parallel()
	for _, verb := range [][]string{{"check"}, {"apply"}, {"rollback", "--all"}} {
		t.Run(verb[0], func(t *testing.T) { // each waits for an answer that does not come
			t.Parallel()
			root := t.TempDir()
			run := filepath.Join(root, "run/image-update-agent")
			require.NoError(t, os.MkdirAll(run, 0o755))
			listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(run, "agent.sock"))
			require.NoError(t, err)
			ctx, interrupt := context.WithCancelCause(t.Context())
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				defer interrupt(interruption{syscall.SIGINT})
				conn, err := listener.Accept()
				if assert.NoError(t, err, "%s does not ask", verb) {
					_, err = conn.Read(make([]byte, 1))
					assert.NoError(t, err)
				}
			}()
			var out, errs bytes.Buffer
			code := execute(ctx, append(verb, "--root", root), streams{in: strings.NewReader(""), out: &out, err: &errs})
			require.NoError(t, listener.Close()) // first: a verb that has not asked is not awaited
			<-asked
			assert.Equal(t, 130, code)
			assert.Contains(t, errs.String(), "error: interrupt signal received\n")
			assert.Contains(t, errs.String(), "hint: the daemon finishes what it has begun; `image-update-agent status` shows it\n", verb)
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// turning is a daemon that becomes held once the first status was shown.
type turning struct {
	left

	mu      sync.Mutex
	state   status.State
	changed chan struct{}
}

func (d *turning) Status() status.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return status.Status{SchemaVersion: status.StatusSchemaVersion, State: d.state}
}

func (d *turning) Changed() <-chan struct{} { return d.changed }

func (d *turning) Listen(func(status.Progress)) func() { return func() {} }

// until calls reached once text was written.
type until struct {
	bytes.Buffer

	steps []step
}

type step struct {
	text    string
	reached func()
}

func (u *until) Write(p []byte) (int, error) {
	n, err := u.Buffer.Write(p)
	if len(u.steps) > 0 && strings.Contains(u.String(), u.steps[0].text) {
		u.steps[0].reached()
		u.steps = u.steps[1:]
	}
	return n, err
}

// A watch shows each status that the daemon reports, and Ctrl-C ends it.
func TestStatusWatch(t *testing.T) {
	t.Parallel()
	for output, c := range map[string]struct{ first, second string }{
		"text": {"State:       staged", "State:       held"},
		"json": {`"state":"staged"`, `"state":"held"`},
	} {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			d := &turning{state: status.StateStaged, changed: make(chan struct{})}
			listening(t, root, d, "status.sock")
			ctx, interrupt := context.WithCancelCause(t.Context())
			out := &until{steps: []step{
				{c.first, func() { d.mu.Lock(); d.state = status.StateHeld; d.mu.Unlock(); close(d.changed) }},
				{c.second, func() { interrupt(interruption{syscall.SIGINT}) }},
			}}
			var errs bytes.Buffer
			args := []string{"status", "--watch", "--root", root, "--output", output}
			assert.Equal(t, 130, execute(ctx, args, streams{in: strings.NewReader(""), out: out, err: &errs}))
			assert.Empty(t, errs.String())
			assert.Equal(t, 1, strings.Count(out.String(), c.first))
			if output == "json" {
				assert.Equal(t, 2, strings.Count(out.String(), "\n"), "one line for each status")
			}
		})
	}
}

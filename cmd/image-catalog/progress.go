// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// progress shows the current step in one line of a terminal. It prints nothing elsewhere.
type progress struct {
	w     *outside.Writer
	width int // 0: no terminal

	mu    sync.Mutex
	shown time.Time // the last one
}

// often is how long a step stays at least: a batch has thousands.
const often = 50 * time.Millisecond

// wipe empties the line that the cursor is in (ECMA-48, EL).
const wipe = "\r\x1b[K"

func newProgress(w io.Writer) *progress {
	p := &progress{w: outside.NewWriter(w)}
	if f, ok := w.(*os.File); ok && terminal.Is(f) {
		p.width = max(terminal.NewPage(w, time.Now()).Width, 40)
	}
	return p
}

func (p *progress) show(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.width > 0 && now.Sub(p.shown) >= often {
		p.w.Control(wipe)
		fmt.Fprint(p.w, outside.Line(step, p.width-1))
		p.shown = now
	}
}

// end clears the line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shown.IsZero() {
		p.w.Control(wipe)
		p.shown = time.Time{}
	}
}

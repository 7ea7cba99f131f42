// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// ErrStalled ends a body that brings nothing any more. A pull has no time limit
// of its own, for nobody knows how long a layer takes; one that never ends would
// keep the agent from every later poll and apply.
var ErrStalled = fmt.Errorf("body: nothing came for %s", stallTimeout)

// watch lets a response's body end the request when it stalls.
func watch(resp *http.Response, cancel context.CancelCauseFunc, stalled func() bool) {
	if resp.Body == http.NoBody {
		cancel(nil)
		return
	}
	b := &watchedBody{ReadCloser: resp.Body, cancel: cancel, stalled: stalled}
	b.timer = time.AfterFunc(stallTimeout, func() { cancel(ErrStalled) })
	b.timer.Stop()
	resp.Body = b
}

// watchedBody counts the time in which somebody waits for it, not that in which
// the reader is busy with a slow disk.
type watchedBody struct {
	io.ReadCloser
	timer   *time.Timer
	cancel  context.CancelCauseFunc
	stalled func() bool
}

// Read is bounded by stallTimeout.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.timer.Reset(stallTimeout)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) && b.stalled() {
		err = ErrStalled
	}
	return n, err
}

// Close ends the request.
func (b *watchedBody) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

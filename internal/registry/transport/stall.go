// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Timeout is the error for a body that takes too long; it is a net.Error.
type Timeout string

func (t Timeout) Error() string { return string(t) }

// Timeout is true.
func (Timeout) Timeout() bool { return true }

// Temporary is false.
func (Timeout) Temporary() bool { return false }

// errStalled ends a body without further data. A pull has no time limit of its own, because a layer may take long; an
// endless one would keep the agent from every later poll and apply.
var errStalled = Timeout("body: no data for " + stallTimeout.String())

// watch makes a response's body end the request when it stalls.
func watch(resp *http.Response, cancel context.CancelCauseFunc, stalled func() bool) {
	if resp.Body == http.NoBody {
		cancel(nil)
		return
	}
	b := &watchedBody{ReadCloser: resp.Body, cancel: cancel, stalled: stalled}
	b.timer = time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	b.timer.Stop()
	resp.Body = b
}

// watchedBody counts the time in which the reader waits, not that in which it is busy with a slow disk.
type watchedBody struct {
	io.ReadCloser
	timer   *time.Timer
	cancel  context.CancelCauseFunc
	stalled func() bool
}

// Read is limited by stallTimeout.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.timer.Reset(stallTimeout)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) && b.stalled() {
		err = errStalled
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

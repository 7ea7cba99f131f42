// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// line is what all answers of a front go over, one after the other.
type line struct {
	lock sync.Mutex
	rate int64 // bytes a second; 0: no limit
	free time.Time
}

// Slow has all answers together take as long as over a line of so many bytes a second; 0: as fast as they are.
func (r *Registry) Slow(bytesPerSecond int64) {
	r.line.lock.Lock()
	defer r.line.lock.Unlock()
	r.line.rate = bytesPerSecond
}

// takes is how long it is until the line has passed so many bytes on.
func (l *line) takes(bytes int64, now time.Time) time.Duration {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.rate == 0 {
		return 0
	}
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(bytes * int64(time.Second) / l.rate))
	return l.free.Sub(now)
}

// slowWriter passes bytes on when the line has.
type slowWriter struct {
	http.ResponseWriter
	ctx  context.Context //nolint:containedctx // of the request, as long as which it lives
	line *line
}

// Write waits, and writes.
func (w *slowWriter) Write(p []byte) (int, error) {
	if wait := w.line.takes(int64(len(p)), time.Now()); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-w.ctx.Done():
			return 0, context.Cause(w.ctx)
		}
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *slowWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

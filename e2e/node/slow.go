// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// line is a connection of limited rate that all responses of a front share.
type line struct {
	lock sync.Mutex
	rate int64 // bytes per second; 0: no limit
	free time.Time
}

// Slow limits the rate of all responses together, in bytes per second; 0: no limit.
func (r *Registry) Slow(bytesPerSecond int64) {
	r.line.lock.Lock()
	defer r.line.lock.Unlock()
	r.line.rate = bytesPerSecond
}

// takes returns the time until the line has transferred the bytes.
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

// slowWriter writes bytes at the rate of the line.
type slowWriter struct {
	http.ResponseWriter
	ctx  context.Context //nolint:containedctx // it lives as long as the request
	line *line
}

// Write waits for the line, and writes.
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

// Unwrap gives http.ResponseController access to the connection.
func (w *slowWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SPDX-License-Identifier: Apache-2.0

// Package sent tells whether an HTTP request may have reached its server, and keeps the secrets that it carried out of
// what is said of the answer.
package sent

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
)

// Watch returns a context for a request, and a function that reports whether the request may have reached the server.
// net/http writes a request only to a connection that it got: after the name was resolved, after TCP connected, and
// after TLS accepted the server's certificate.
func Watch(ctx context.Context) (watched context.Context, maybeSent func() bool) {
	var got atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Store(true) }}
	return httptrace.WithClientTrace(ctx, trace), got.Load
}

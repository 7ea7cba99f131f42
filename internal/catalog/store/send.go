// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/sent"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/registry/distspec"
)

// sender sends each request of a Client, also those of its logins. It repeats one that may end
// otherwise next time, after the wait that the registry asks for; it ends one that stands still or
// takes too long, and it bounds the answer.
type sender struct {
	inner http.RoundTripper
	dated *atomic.Int64
}

// newTransport returns connections that are made so.
func newTransport(connect func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: connect,
		TLSHandshakeTimeout: tlsTimeout, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
	}
}

// RoundTrip sends a request until it has a final answer.
func (s sender) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	last := time.Now().Add(repeatTime)
	for attempt := 1; ; attempt++ {
		resp, err := s.once(r, body)
		if attempt == MaxAttempts || r.Context().Err() != nil || !mayPass(resp, err) {
			return resp, err
		}
		now := time.Now()
		pause := backOff(attempt)
		if resp != nil {
			if at := distspec.RetryAfter(resp.Header.Get("Retry-After"), now, time.Hour); !at.IsZero() {
				pause = at.Sub(now)
			}
		}
		if now.Add(pause).After(last) {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		if err := wait.For(r.Context(), pause); err != nil {
			return nil, err
		}
	}
}

// bodyOf reads what a request sends, so that it can be sent again.
func bodyOf(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	defer r.Body.Close()
	return outside.ReadAll(r.Body, maxSent)
}

// once sends a request once.
func (s sender) once(r *http.Request, body []byte) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	w := &watch{
		ctx: ctx, cancel: cancel,
		stalled: time.AfterFunc(stallTimeout, func() { cancel(&timeoutError{"no answer", stallTimeout}) }),
		late:    time.AfterFunc(sendTimeout, func() { cancel(&timeoutError{"no complete answer", sendTimeout}) }),
	}
	own := r.Clone(ctx)
	if own.Body = http.NoBody; len(body) > 0 {
		own.Body = &watchedBody{body: io.NopCloser(bytes.NewReader(body)), watch: w, left: maxSent}
		own.ContentLength = int64(len(body))
	}
	own.GetBody = nil
	resp, err := s.inner.RoundTrip(own)
	if err != nil {
		err = sent.Unsaid(w.cause(err), sent.Secrets(own, http.ProxyFromEnvironment)...)
		w.end()
		return nil, err
	}
	w.moved()
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		s.dated.Store(at.Unix())
	}
	resp.Body = &watchedBody{body: resp.Body, watch: w, left: maxAnswer, ends: true}
	return resp, nil
}

// timeoutError is the end of a request that took too long.
type timeoutError struct {
	what  string
	after time.Duration
}

func (e *timeoutError) Error() string { return fmt.Sprintf("%s within %s", e.what, e.after) }
func (e *timeoutError) Timeout() bool { return true }

// watch ends a request that stands still or takes too long.
type watch struct {
	ctx           context.Context //nolint:containedctx // of one request
	cancel        context.CancelCauseFunc
	stalled, late *time.Timer
}

// moved notes that bytes came or went.
func (w *watch) moved() { w.stalled.Reset(stallTimeout) }

func (w *watch) end() {
	w.stalled.Stop()
	w.late.Stop()
	w.cancel(nil)
}

// cause returns why a request failed: a timeout, or the error of the connection.
func (w *watch) cause(err error) error {
	if timeout, is := errors.AsType[*timeoutError](context.Cause(w.ctx)); is {
		return timeout
	}
	return err
}

// watchedBody is the body of a request or of an answer.
type watchedBody struct {
	body  io.ReadCloser
	watch *watch
	left  int64
	ends  bool // the request ends with it
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", outside.ErrTooLarge, maxAnswer)
	}
	if n > 0 && err == nil {
		b.watch.moved()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.watch.cause(err)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	if b.ends {
		b.watch.end()
	}
	return b.body.Close()
}

// mayPass reports whether a request may end otherwise next time. Distribution 2.8 answers 500
// for a tag that is read while it is written.
func mayPass(resp *http.Response, err error) bool {
	if err == nil {
		const tooEarly = 425
		return resp.StatusCode >= http.StatusInternalServerError && resp.StatusCode != http.StatusNotImplemented ||
			slices.Contains([]int{http.StatusTooManyRequests, http.StatusRequestTimeout, tooEarly}, resp.StatusCode)
	}
	return isBroken(err)
}

// isBroken reports whether a connection was broken, or a time is over.
func isBroken(err error) bool {
	if timeout, is := errors.AsType[interface {
		error
		Timeout() bool
	}](err); is && timeout.Timeout() {
		return true
	}
	broken := []error{
		io.ErrUnexpectedEOF, io.EOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE,
	}
	return slices.ContainsFunc(broken, func(b error) bool { return errors.Is(err, b) })
}

// blobUnknownInManifest is a code of registries before distribution 2.
const blobUnknownInManifest = transport.BlobUnknownErrorCode

// repeat does something that needs several requests until it ends well, or with an error that
// stays. Single requests are repeated by the sender.
func repeat(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || attempt == MaxAttempts || ctx.Err() != nil || !mayBegin(err) {
			return err
		}
		if waitErr := BackOff(ctx, attempt); waitErr != nil {
			return err
		}
	}
}

// mayBegin reports whether the same requests may succeed when they are repeated: after codes of
// distribution 2.8 for a blob that two clients upload at once, and after a body that broke off.
func mayBegin(err error) bool {
	if _, isTimeout := errors.AsType[*timeoutError](err); isTimeout {
		return false
	}
	if _, answered := errors.AsType[*transport.Error](err); answered {
		return hasCode(err, transport.DigestInvalidErrorCode, transport.BlobUploadInvalidErrorCode,
			transport.BlobUploadUnknownErrorCode, transport.SizeInvalidErrorCode,
			transport.ManifestBlobUnknownErrorCode)
	}
	_, unsent := errors.AsType[*url.Error](err) // the sender has repeated it
	return !unsent && isBroken(err)
}

// BackOff waits before the next attempt: longer each time, and partly random, so that publishers differ.
func BackOff(ctx context.Context, attempt int) error { return wait.For(ctx, backOff(attempt)) }

func backOff(attempt int) time.Duration {
	d := min(firstWait<<min(attempt-1, 10), longestWait)
	return d/2 + rand.N(d) //nolint:gosec // it only spreads requests
}

// hasCode reports whether a registry gave one of these codes.
func hasCode(err error, codes ...transport.ErrorCode) bool {
	e, ok := errors.AsType[*transport.Error](err)
	return ok && slices.ContainsFunc(e.Errors, func(d transport.Diagnostic) bool { return slices.Contains(codes, d.Code) })
}

// kindOf makes release.ErrNotFound of a 404, and bounds the text of a registry. Of the URL that a
// request failed at, it leaves out the query: a redirect has its token there.
func kindOf(err error) error {
	if e, ok := errors.AsType[*transport.Error](err); ok && e.StatusCode == http.StatusNotFound &&
		!hasCode(err, transport.BlobUploadUnknownErrorCode) {
		return release.ErrNotFound
	}
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return outside.Error(sent.Unsaid(err, sent.Secrets(e.Request, nil)...))
	}
	if failed, is := err.(*url.Error); is { //nolint:errorlint // the outermost: its text is what is shown
		if u, parseErr := url.Parse(failed.URL); parseErr == nil {
			u.RawQuery, u.Fragment, u.User = "", "", nil
			err = &url.Error{Op: failed.Op, URL: u.String(), Err: failed.Err}
		}
	}
	return outside.Error(err)
}

// Status returns the HTTP status of a registry's error; 0: there is none.
func Status(err error) int {
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return e.StatusCode
	}
	return 0
}

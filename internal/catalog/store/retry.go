// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

const (
	// MaxAttempts is how often a request is sent at most, within about 12 seconds.
	MaxAttempts = 7
	firstWait   = 100 * time.Millisecond
	longestWait = 5 * time.Second
)

// blobUnknownInManifest is a code of registries before distribution 2.
const blobUnknownInManifest = transport.BlobUnknownErrorCode

// repeat sends a request until it ends well, or with an error that stays.
func (c *Client) repeat(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || attempt == MaxAttempts || ctx.Err() != nil || !mayPass(err) {
			return err
		}
		if waitErr := BackOff(ctx, attempt); waitErr != nil {
			return err
		}
	}
}

// BackOff waits before the next attempt: longer each time, and not as long as others do.
func BackOff(ctx context.Context, attempt int) error {
	d := min(firstWait<<min(attempt-1, 10), longestWait)
	d = d/2 + rand.N(d) //nolint:gosec // it only spreads requests
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// mayPass reports whether a request may end otherwise next time. Distribution 2.8 answers 500
// for a tag that is read while it is written, and DIGEST_INVALID for a blob that two clients
// upload at once.
func mayPass(err error) bool {
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return e.StatusCode >= http.StatusInternalServerError && e.StatusCode != http.StatusNotImplemented ||
			e.StatusCode == http.StatusTooManyRequests || e.StatusCode == http.StatusRequestTimeout ||
			hasCode(err, transport.DigestInvalidErrorCode, transport.BlobUploadInvalidErrorCode,
				transport.BlobUploadUnknownErrorCode, transport.SizeInvalidErrorCode,
				transport.ManifestBlobUnknownErrorCode)
	}
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return true
	}
	broken := []error{
		io.ErrUnexpectedEOF, io.EOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE,
	}
	return slices.ContainsFunc(broken, func(b error) bool { return errors.Is(err, b) })
}

// hasCode reports whether a registry gave one of these codes.
func hasCode(err error, codes ...transport.ErrorCode) bool {
	e, ok := errors.AsType[*transport.Error](err)
	return ok && slices.ContainsFunc(e.Errors, func(d transport.Diagnostic) bool { return slices.Contains(codes, d.Code) })
}

// kindOf makes release.ErrNotFound of a 404, and bounds the text of a registry.
func kindOf(err error) error {
	if e, ok := errors.AsType[*transport.Error](err); ok && e.StatusCode == http.StatusNotFound &&
		!hasCode(err, transport.BlobUploadUnknownErrorCode) {
		return release.ErrNotFound
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

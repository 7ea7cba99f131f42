// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/sent"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
)

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

// BackOff waits before the next attempt: longer each time, and by chance, so that publishers differ.
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

// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// weightiest is the error to report for hosts that all gave no answer: the last
// one that is not a 404, for "not found" is only true where nobody else could
// know better. The other hosts stand in its text. It may be asked again when the
// first of them may.
func weightiest(failed []*agent.SourceError) error {
	pick := len(failed) - 1
	for i, f := range failed {
		if f.Status != http.StatusNotFound {
			pick = i
		}
	}
	reported := *failed[pick]
	var others []string
	for i, f := range failed {
		if i != pick {
			others = append(others, strings.TrimPrefix(f.Error(), f.Repository+": "))
		}
		reported.Unasked = reported.Unasked && f.Unasked
		if f.Status != http.StatusNotFound && f.RetryAt.Before(reported.RetryAt) {
			reported.RetryAt = f.RetryAt // zero: whenever the agent likes
		}
	}
	if len(others) > 0 {
		reported.Err = fmt.Errorf("%w (%s)", reported.Err, strings.Join(others, "; "))
	}
	return &reported
}

// failed is an endpoint's way of giving no answer, or of not being asked for
// one. A host that is not the endpoint's (a token server, where a redirect led
// to) is named.
func (e endpoint) failed(err error) *agent.SourceError {
	if errors.Is(err, io.EOF) {
		err = errors.New(err.Error()) // else a reader would take it for the end
	}
	f := &agent.SourceError{
		Repository: e.repository, Host: e.host.Host, Mirror: e.mirror, Cause: causeOf(err), Err: outside.Error(err),
	}
	h, ok := errors.AsType[*held](err)
	if !ok {
		return f
	}
	f.Status, f.RetryAt, f.Unasked = h.status, h.until, h.unsent
	f.Cause = agent.CauseUnasked
	if !h.unsent {
		f.Cause = causeOfStatus(h.status)
	}
	switch h.host {
	case "":
		f.Host, f.Mirror = "", false
	case hostKey(&url.URL{Scheme: e.host.Scheme, Host: e.host.Host}):
	default:
		f.Err = outside.Error(fmt.Errorf("%s: %w", h.host, err))
	}
	return f
}

// refused is an endpoint's answer with another status than 200. cause may be
// nil.
func (e endpoint) refused(resp *http.Response, cause error, now time.Time) *agent.SourceError {
	f := e.failed(statusError(resp.StatusCode))
	if cause != nil {
		f.Err = outside.Error(fmt.Errorf("%w: %w", f.Err, plain(cause)))
	}
	f.Status = resp.StatusCode
	f.Cause = causeOfStatus(resp.StatusCode)
	f.RetryAt = retryAt(resp.Header, now)
	return f
}

// statusError words a status by its code alone: the reason phrase is the
// host's.
func statusError(code int) error {
	if code == http.StatusNotFound {
		return fmt.Errorf("%d: %w", code, agent.ErrNotFound)
	}
	return errors.New(strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code))))
}

// plain takes the URL out of an error of the HTTP client or the authorizer: the
// query of a redirect's or a realm's URL may be a secret.
func plain(err error) error {
	if status, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err); ok {
		return fmt.Errorf("token server: %w", statusError(status.StatusCode))
	}
	if withURL, ok := errors.AsType[*url.Error](err); ok {
		return withURL.Err
	}
	return err
}

// retryAt reads Retry-After, as seconds or as a date (RFC 9110, 10.2.3). It is
// zero where there is none, or none that can be read.
func retryAt(h http.Header, now time.Time) time.Time {
	value := strings.TrimSpace(h.Get("Retry-After"))
	latest := now.Add(maxRetryAfter)
	if isDigits(value) {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return latest
		}
		return now.Add(time.Duration(seconds) * time.Second)
	}
	at, err := http.ParseTime(value)
	at = at.UTC()
	switch {
	case err != nil || at.Before(now):
		return time.Time{}
	case at.After(latest):
		return latest
	}
	return at
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"

	"github.com/kubic-project/image-update-agent/agent"
)

// weightiest is the error to report for hosts that all gave no answer: the last
// one that is not a 404, for "not found" is only true where nobody else could
// know better. The other hosts stand in its text.
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
	}
	if len(others) > 0 {
		reported.Err = fmt.Errorf("%w (%s)", reported.Err, strings.Join(others, "; "))
	}
	return &reported
}

// failed is an endpoint's way of giving no answer without an HTTP status.
func (e endpoint) failed(err error) *agent.SourceError {
	return &agent.SourceError{Repository: e.repository, Host: e.host.Host, Mirror: e.mirror, Err: err}
}

// refused is an endpoint's answer with another status than 200. cause may be
// nil.
func (e endpoint) refused(resp *http.Response, cause error, now time.Time) *agent.SourceError {
	f := e.failed(statusError(resp.StatusCode))
	if cause != nil {
		f.Err = fmt.Errorf("%w: %w", f.Err, plain(cause))
	}
	f.Status = resp.StatusCode
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

// query is that of a URL in the text of an error.
var query = regexp.MustCompile(`\?[^\s"]+`)

// withoutQuery words an error without what may be secret in it.
type withoutQuery struct {
	text string
	err  error
}

func (e *withoutQuery) Error() string { return e.text }
func (e *withoutQuery) Unwrap() error { return e.err }

// plain takes the URL out of an error of the HTTP client or the authorizer: the
// query of a redirect's or a realm's URL may be a secret.
func plain(err error) error {
	if status, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err); ok {
		return fmt.Errorf("token server: %w", statusError(status.StatusCode))
	}
	if withURL, ok := errors.AsType[*url.Error](err); ok {
		err = withURL.Err
	}
	if text := err.Error(); query.MatchString(text) {
		return &withoutQuery{query.ReplaceAllString(text, "?..."), err} // a Location that is no URL
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

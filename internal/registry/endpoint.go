// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// endpoint is one repository on one host.
type endpoint struct {
	client     *transport.Client
	host       docker.RegistryHost
	repository string // as in the pod manifest, with the namespace
	namespace  string
	path       string // the repository within the namespace
	mirror     bool
	note       func(private bool) // called for each answer
	documents  *documents         // for the pull that follows
}

func (r *Registry) endpoint(namespace, path string, host docker.RegistryHost) endpoint {
	repository := namespace + "/" + path
	// docker.io is only a name; its registry is another host.
	self := host.Host == namespace || namespace == "docker.io" && host.Host == "registry-1.docker.io"
	return endpoint{
		client: r.client, host: host, mirror: !self,
		repository: repository, namespace: namespace, path: path,
		documents: &r.documents,
		note:      func(private bool) { r.private.Store(repository, private) },
	}
}

// url returns a URL in the repository. A mirror gets the namespace in the query, as in containerd, because it may
// mirror several.
func (e endpoint) url(parts ...string) *url.URL {
	u := &url.URL{
		Scheme: e.host.Scheme,
		Host:   e.host.Host,
		Path:   path.Join("/", e.host.Path, e.path, path.Join(parts...)),
	}
	return e.withNamespace(u)
}

func (e endpoint) withNamespace(u *url.URL) *url.URL {
	if query := u.Query(); e.mirror && query.Get("ns") != e.namespace {
		query.Set("ns", e.namespace)
		u.RawQuery = query.Encode()
	}
	return u
}

// get sends a GET request for at most limit bytes. Errors are SourceErrors.
func (e endpoint) get(ctx context.Context, u *url.URL, accept string, limit int64) (transport.Answer, error) {
	return e.ask(ctx, transport.Question{URL: u, Accept: accept, Limit: limit})
}

// ask sends a request. Errors are SourceErrors.
func (e endpoint) ask(ctx context.Context, q transport.Question) (transport.Answer, error) {
	q.Repository = e.path
	a, err := e.client.Ask(ctx, e.host, q)
	if err == nil && isPage(a.Header) {
		err = errPage
	}
	if err != nil {
		return transport.Answer{}, e.failed(err)
	}
	e.note(a.Private)
	return a, nil
}

// errPage: the server is not a registry but, for example, a proxy that requires a login.
var errPage = errors.New("answers with a web page (text/html): a login page, or not a registry")

// isPage reports whether an answer is for people.
func isPage(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind == "text/html"
}

// hasStatus reports whether a host answered with one of the statuses.
func hasStatus(err error, statuses ...int) bool {
	source, ok := errors.AsType[*release.SourceError](err)
	return ok && slices.Contains(statuses, source.Status)
}

// weightiest returns the error to report if no host answered: the one after which containerd asks no other host; else
// the last one that is not a 404, because "not found" is only true if every host says so. Its text includes the other
// hosts. It is silent if one of them is, and may be retried when the first of them may.
func weightiest(failed []*release.SourceError) *release.SourceError {
	pick := len(failed) - 1
	for i, f := range failed {
		if f.Answered {
			pick = i
			break
		}
		if f.Status != http.StatusNotFound {
			pick = i
		}
	}
	reported := *failed[pick]
	var others []string
	for i, f := range failed {
		if text := f.Answer(); i != pick && text != reported.Answer() && !slices.Contains(others, text) {
			others = append(others, text) // hosts.toml may list a host twice
		}
		reported.Unasked = reported.Unasked && f.Unasked
		reported.Silent = reported.Silent || f.Silent
		reported.Refused = reported.Refused && (f.Refused || f.Status == http.StatusNotFound)
		if f.Status != http.StatusNotFound && f.RetryAt.Before(reported.RetryAt) {
			reported.RetryAt = f.RetryAt // zero: at any time
		}
	}
	if len(others) > 0 {
		reported.Err = fmt.Errorf("%w (%s)", reported.Err, strings.Join(others, "; "))
	}
	return &reported
}

// failed returns the error of an endpoint that did not answer, or was not asked. It names a host other than the
// endpoint's (a token server, or the target of a redirect).
func (e endpoint) failed(err error) *release.SourceError {
	f := &release.SourceError{Repository: e.repository, Host: e.host.Host, Mirror: e.mirror, Cause: causeOf(err)}
	if errors.Is(err, io.EOF) {
		err = errors.New(err.Error()) // otherwise a reader would see the end of the data
	}
	_, f.Silent = errors.AsType[*transport.Silent](err)
	var held *transport.Held
	var refused *transport.Refused
	switch {
	case errors.As(err, &held):
		f.Status, f.RetryAt, f.Unasked, f.Silent = held.Status, held.Until, held.Unsent, held.Silent
		if held.Host == "" {
			f.Host, f.Mirror = "", false
		}
		if held.Led {
			err = fmt.Errorf("%s: %w", held.Host, err)
		}
	case errors.As(err, &refused):
		f.Status, f.RetryAt = refused.Status, refused.RetryAt
		if refused.Status == http.StatusNotFound {
			err = fmt.Errorf("%d: %w", refused.Status, release.ErrNotFound)
		}
	}
	f.Err = outside.Error(withoutHost(err, e.host))
	return f
}

// withoutHost removes the asked host from Go's error text, because the error already names it.
func withoutHost(err error, host docker.RegistryHost) error {
	name := (&url.URL{Host: host.Host}).Hostname()
	text := strings.NewReplacer(
		"dial tcp "+host.Host+": ", "dial tcp: ", "lookup "+name+":", "lookup:", "lookup "+name+" on ", "lookup on ",
	).Replace(err.Error())
	if text == err.Error() {
		return err
	}
	return &shortened{text, err}
}

// shortened is an error with another text.
type shortened struct {
	text string
	err  error
}

func (s *shortened) Error() string { return s.text }

func (s *shortened) Unwrap() error { return s.err }

// answered marks the error of a request for a manifest that containerd's pull also sends: one after which containerd
// asks no other host (a page, another 2xx or 304, a redirect that is not followed), and the refusal of one manifest by
// a policy, which is 412 of Harbor, and 403 of Artifactory and Nexus.
func answered(err error) error {
	f, is := errors.AsType[*release.SourceError](err)
	if !is {
		return err
	}
	unfollowed, held := transport.Unfollowed(""), (*transport.Held)(nil)
	if f.Status > 0 && f.Status < http.StatusBadRequest || errors.Is(err, errPage) ||
		errors.Is(err, transport.ErrInward) || errors.As(err, &unfollowed) || errors.As(err, &held) && held.Inward {
		f.Answered = true
	}
	f.Refused = !f.Unasked && (f.Status == http.StatusForbidden || f.Status == http.StatusPreconditionFailed ||
		f.Status == http.StatusUnavailableForLegalReasons)
	return err
}

// notThere returns the error for an endpoint without the object: equal to a 404.
func (e endpoint) notThere(what string, cause error) *release.SourceError {
	f := e.failed(fmt.Errorf("%s: %w: %w", what, release.ErrNotFound, cause))
	f.Status = http.StatusNotFound
	return f
}

// causeOf returns the cause of an error. A slow name server has its own cause, because the registry is not slow.
func causeOf(err error) release.Cause {
	if held, ok := errors.AsType[*transport.Held](err); ok {
		if held.Unsent {
			return release.CauseUnasked
		}
		return causeOfStatus(held.Status)
	}
	if refused, ok := errors.AsType[*transport.Refused](err); ok {
		return causeOfStatus(refused.Status)
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return release.CauseDNS
	}
	if isTLS(err) {
		return release.CauseTLS
	}
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		return release.CauseTimeout
	}
	for _, number := range []syscall.Errno{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, number) {
			return release.CauseRefused
		}
	}
	switch {
	case errors.Is(err, transport.ErrPlainCredentials):
		return release.CauseAuth
	case errors.Is(err, errPage):
		return release.CauseNoRegistry
	}
	return release.CauseOther
}

// isTLS reports whether no connection with a verified host was established.
func isTLS(err error) bool {
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	return errors.Is(err, http.ErrSchemeMismatch) || // the server speaks plain http
		errors.As(err, &certificate) || errors.As(err, &alert) || errors.As(err, &authority) || errors.As(err, &name)
}

func causeOfStatus(status int) release.Cause {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return release.CauseAuth
	case status == http.StatusNotFound:
		return release.CauseNotFound
	case status == http.StatusTooManyRequests:
		return release.CauseRateLimited
	case status >= http.StatusInternalServerError:
		return release.CauseServerError
	default:
		return release.CauseOther
	}
}

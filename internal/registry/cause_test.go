// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

func TestCausesOfAnswers(t *testing.T) {
	t.Parallel()
	for status, cause := range map[int]release.Cause{
		http.StatusUnauthorized:        release.CauseAuth,
		http.StatusForbidden:           release.CauseAuth,
		http.StatusNotFound:            release.CauseNotFound,
		http.StatusTooManyRequests:     release.CauseRateLimited,
		http.StatusInternalServerError: release.CauseServerError,
		http.StatusServiceUnavailable:  release.CauseServerError,
		http.StatusTeapot:              release.CauseOther,
	} {
		for _, retryAfter := range []string{"", "90"} {
			f := newFake(t)
			f.answer(func(w http.ResponseWriter, _ *http.Request) {
				if retryAfter != "" {
					w.Header().Set("Retry-After", retryAfter)
				}
				w.WriteHeader(status)
			})
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
			assert.Equal(t, cause, sourceError(t, f.poll(t, r)).Cause, "%d %s", status, retryAfter)
		}
	}
}

// A login page in place of a registry, with a 200 or a redirect, is detected for each kind of request.
func TestLoginPageIsNotARegistry(t *testing.T) {
	t.Parallel()
	for _, led := range []bool{false, true} {
		f := newFake(t)
		f.answer(func(w http.ResponseWriter, req *http.Request) {
			if led && req.URL.Path != "/login" {
				http.Redirect(w, req, "/login", http.StatusFound)
				return
			}
			w.Header().Set("Content-Type", "text/html; charset=UTF-8")
			_, _ = w.Write([]byte("<html>Please log in.</html>"))
		})
		r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
		_, list := r.Tags(t.Context(), f.repository())
		_, describe := r.Describe(t.Context(), f.repository(), digest.FromString("x"))
		for question, err := range map[string]error{"tag": f.poll(t, r), "tags": list, "digest": describe} {
			source := sourceError(t, err)
			assert.Equal(t, release.CauseNoRegistry, source.Cause, question)
			assert.NotErrorIs(t, err, release.ErrNotFound, question)
			assert.ErrorContains(t, err, "upstream "+f.host()+": answers with a web page (text/html): a login page, or not a registry")
		}
	}
}

// Failures below HTTP, with real causes.
func TestCausesBelowAnAnswer(t *testing.T) {
	t.Parallel()
	poll := func(t *testing.T, f *fake, hosts string, dial transport.DialFunc) release.Cause {
		t.Helper()
		r, _ := newRegistry(t, certsD(t, f.host(), hosts))
		r.client.Dial = dial
		return sourceError(t, f.poll(t, r)).Cause
	}
	plain := newFake(t)
	tls := newOwnTLS(t, func(*ownTLS) {}).fake
	noNames := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no name server")
	}}
	assert.Equal(t, release.CauseDNS, poll(t, plain, plainHTTP(plain.host()),
		func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Resolver: noNames}).DialContext(ctx, network, "registry.example.com:80")
		}))
	assert.Equal(t, release.CauseTLS, poll(t, tls, "server = \"https://"+tls.host()+"\"\n", nil), "an unknown authority")
	assert.Equal(t, release.CauseTLS, poll(t, plain, "server = \"https://"+plain.host()+"\"\n[host.\"https://"+plain.host()+
		"\"]\n  capabilities = [\"resolve\"]\n", func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, plain.host())
	}), "no TLS at all")
	assert.Equal(t, release.CauseOther, poll(t, plain, plainHTTP(plain.host()),
		func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("odd") }))
	plain.Close()
	r, _ := newRegistry(t, certsD(t, plain.host(), plainHTTP(plain.host())))
	var last *release.SourceError
	for range 10 { // until the host is in back-off
		if last = sourceError(t, plain.poll(t, r)); last.Unasked {
			break
		}
		require.Equal(t, release.CauseRefused, last.Cause)
	}
	assert.Equal(t, release.CauseUnasked, last.Cause)
}

func TestCauseOfATimeout(t *testing.T) {
	t.Parallel()
	assert.Equal(t, release.CauseTimeout, causeOf(fmt.Errorf("layer: %w", transport.Timeout("body"))))
	assert.Equal(t, release.CauseAuth, causeOf(fmt.Errorf("x: %w", transport.ErrPlainCredentials)))
}

// containerd waits for a silent mirror, and accepts a page as an answer: it then asks no later host, even if upstream
// refuses connections.
func TestWhatEndsContainerdsSearchIsReported(t *testing.T) {
	t.Parallel()
	refused := &release.SourceError{Host: "upstream", Cause: release.CauseRefused, Err: errors.New("connection refused")}
	silent := &release.SourceError{Host: "mirror", Cause: release.CauseTimeout, Silent: true, Err: errors.New("timeout")}
	page := &release.SourceError{Host: "mirror", Cause: release.CauseNoRegistry, Answered: true, Err: errPage}
	for _, order := range [][]*release.SourceError{{silent, refused}, {refused, silent}} {
		assert.True(t, weightiest(order).Silent)
	}
	for _, order := range [][]*release.SourceError{{page, refused}, {refused, page}, {silent, page, refused}} {
		assert.Equal(t, release.CauseNoRegistry, weightiest(order).Cause)
	}
}

// One image is refused only if no host may have it.
func TestRefusalOfEachHost(t *testing.T) {
	t.Parallel()
	refused := &release.SourceError{Host: "upstream", Status: 403, Refused: true, Err: errors.New("403 Forbidden")}
	missing := &release.SourceError{Host: "mirror", Status: 404, Err: release.ErrNotFound}
	away := &release.SourceError{Host: "mirror", Err: errors.New("connection refused")}
	for _, order := range [][]*release.SourceError{{refused}, {refused, refused}, {refused, missing}, {missing, refused}} {
		assert.True(t, weightiest(order).Refused)
	}
	for _, order := range [][]*release.SourceError{{refused, away}, {away, refused}, {missing, missing}} {
		assert.False(t, weightiest(order).Refused)
	}
}

// An error has object, place and cause, each once, for each kind of request, and also during back-off.
func TestErrorsNameEachPartOnce(t *testing.T) {
	t.Parallel()
	const name = "registry.example.com"
	check := func(t *testing.T, host, hosts, cause string, dial error) {
		t.Helper()
		r, _ := newRegistry(t, certsD(t, host, hosts))
		if dial != nil {
			r.client.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, dial }
		}
		repository := host + "/app"
		for range 2 { // until the host is in back-off
			_, tag := r.Resolve(t.Context(), release.Reference{Repository: repository, Tag: "1"})
			_, list := r.Tags(t.Context(), repository)
			_, described := r.Describe(t.Context(), repository, digest.FromString("x"))
			for _, err := range []error{tag, list, described} {
				text, ok := strings.CutPrefix(err.Error(), repository+": upstream "+host+": ")
				assert.True(t, ok, err)
				assert.Equal(t, 1, strings.Count(text, cause), "%q in %v", cause, err)
				assert.NotContains(t, text, (&url.URL{Host: host}).Hostname(), err)
			}
		}
	}
	for status, cause := range map[int]string{
		401: "401 Unauthorized", 403: "403 Forbidden", 404: "404: not found", 418: "418 I'm a teapot",
		429: "429 Too Many Requests", 500: "500 Internal Server Error", 503: "503 Service Unavailable",
	} {
		f := newFake(t)
		f.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		check(t, f.host(), plainHTTP(f.host()), cause, nil)
	}
	tls := newOwnTLS(t, func(*ownTLS) {}).fake
	check(t, tls.host(), "server = \"https://"+tls.host()+"\"\n", "certificate signed by unknown authority", nil)
	plain := newFake(t) // hosts.toml may name it twice
	r, _ := newRegistry(t, certsD(t, plain.host(), "server = \"https://"+plain.host()+"\"\n[host.\"https://"+plain.host()+"\"]\n"))
	assert.EqualError(t, plain.poll(t, r), plain.repository()+": upstream "+plain.host()+": http: server gave HTTP response to HTTPS client")
	closed := deadHost(t)
	check(t, closed, plainHTTP(closed), "connect: connection refused", nil)
	for cause, err := range map[string]error{
		"203.0.113.5:5000: connect: no route": &net.OpError{
			Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 5), Port: 5000}, Err: errors.New("connect: no route"),
		},
		"lookup: no such host": &net.DNSError{Err: "no such host", Name: name, IsNotFound: true},
		"lookup on 192.0.2.53:53: server misbehaving": &net.DNSError{
			Err: "server misbehaving", Name: name, Server: "192.0.2.53:53",
		},
	} {
		check(t, name, plainHTTP(name), cause, err)
		check(t, name+":5000", plainHTTP(name+":5000"), cause, err)
	}
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRegistry(t, certsD(t, name, plainHTTP(name)))
		r.client.Dial = noConnection
		_, err := r.Resolve(t.Context(), release.Reference{Repository: name + "/app", Tag: "1"})
		assert.EqualError(t, err, name+"/app: upstream "+name+": context deadline exceeded")
	})
}

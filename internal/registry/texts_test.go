// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/release"
)

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
	closed := newFake(t)
	closed.Close()
	check(t, closed.host(), plainHTTP(closed.host()), "connect: connection refused", nil)
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

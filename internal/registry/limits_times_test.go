// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

const listed = "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n"

// after waits in the bubble's time, until the test ends.
func after(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// answers serves requests on one connection: each gets the answer, in pieces with a wait before each. %d is the number
// of the request, from 1.
func answers(pieces ...any) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		requests := bufio.NewReader(conn)
		for n := 1; ; n++ {
			req, err := http.ReadRequest(requests)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			for _, piece := range pieces {
				switch p := piece.(type) {
				case time.Duration:
					after(ctx, p)
				case func(int) string:
					_, err = io.WriteString(conn, p(n))
				case string:
					_, err = io.WriteString(conn, p)
				}
				if err != nil {
					return
				}
			}
		}
	}
}

func late(d time.Duration) func(*testing.T) transport.DialFunc {
	return func(t *testing.T) transport.DialFunc {
		dial := slowHost(answers(listed + `{"tags":["1"]}`))(t)
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(d): // the bubble's time
				return dial(ctx, network, address)
			}
		}
	}
}

// tlsLate returns a host with a delayed handshake.
func tlsLate(cert, key string, d time.Duration) func(*testing.T) transport.DialFunc {
	return slowHost(func(ctx context.Context, conn net.Conn) {
		after(ctx, d)
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return
		}
		answers(listed+`{"tags":["1"]}`)(ctx, tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}))
	})
}

// pagesEach returns a list of pages whose last one is delayed.
func pagesEach(wait time.Duration, count int, last time.Duration) func(context.Context, net.Conn) {
	requests := 0
	return func(ctx context.Context, conn net.Conn) {
		for in := bufio.NewReader(conn); ; {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			requests++
			link, pause := fmt.Sprintf("Link: <?last=%d>; rel=next\r\n", requests), wait
			if requests == count {
				link, pause = "", last
			}
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n%s\r\n", link)
			after(ctx, pause)
			_, _ = fmt.Fprintf(conn, `{"tags":["%03d"]}`, requests)
		}
	}
}

// Time limits: a nanosecond less is enough, a nanosecond more is too much, and the request ends at the limit. (Exactly
// at the limit both are right.)
func TestLimitsOfTime(t *testing.T) {
	t.Parallel()
	const page = 50 * time.Second
	limits := []struct {
		title string
		limit time.Duration
		host  func(cert, key string, d time.Duration) func(*testing.T) transport.DialFunc
		want  string
	}{
		{"dial", dialTimeout, func(_, _ string, d time.Duration) func(*testing.T) transport.DialFunc { return late(d) }, "deadline exceeded"},
		{"TLS", tlsTimeout, tlsLate, "TLS handshake timeout"},
		{"header", headerTimeout, func(_, _ string, d time.Duration) func(*testing.T) transport.DialFunc {
			return slowHost(answers(d, listed+`{"tags":["1"]}`))
		}, "timeout awaiting response headers"},
		{"header, as containerd 2.2", patientTimeout, func(_, _ string, d time.Duration) func(*testing.T) transport.DialFunc {
			return slowHost(answers(d, listed+`{"tags":["1"]}`))
		}, "timeout awaiting response headers"},
		{"header, in drops", headerTimeout, func(_, _ string, d time.Duration) func(*testing.T) transport.DialFunc {
			return slowHost(answers("HTTP/1.1 2", d/3, "00 OK\r\nX: ", d/3, "x\r\nContent-Length: 14", d-2*(d/3), "\r\n\r\n"+`{"tags":["1"]}`))
		}, "timeout awaiting response headers"},
		{"whole exchange", exchangeTimeout, func(_, _ string, d time.Duration) func(*testing.T) transport.DialFunc {
			return slowHost(answers(headerTimeout-1, listed, d-headerTimeout+1, `{"tags":["1"]}`))
		}, "deadline exceeded"},
		{"whole exchange, in drops", exchangeTimeout, func(_, _ string, d time.Duration) func(*testing.T) transport.DialFunc {
			return slowHost(answers(listed, d/4, `{"ta`, d/4, `gs":`, d/4, `["1"]`, d-3*(d/4), `}`))
		}, "deadline exceeded"},
		{"all pages", listTimeout, func(_, _ string, d time.Duration) func(*testing.T) transport.DialFunc {
			return slowHost(pagesEach(page, 6, d-5*page))
		}, "tag list: incomplete after 5m0s"},
	}
	for _, l := range limits {
		for _, off := range []time.Duration{-1, 1} {
			t.Run(fmt.Sprintf("%s %+d", l.title, off), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ca, cert, key := certificate(t)
					const namespace = "127.0.0.1:5000"
					server := plainHTTP(namespace)
					if l.title == "TLS" {
						server = "server = \"https://" + namespace + "\"\nca = \"" + ca + "\"\n"
					}
					version := "v2.3.0"
					if _, is, ok := strings.Cut(l.title, "as containerd "); ok {
						version = "v" + is
					}
					r, _ := newRegistry(t, certsD(t, namespace, server), func(o *Options) {
						o.IsPatient = func() bool { return !hosts.EndsSilence(version) }
					})
					r.client.Dial = l.host(cert, key, l.limit+off)(t)
					start := time.Now()
					names, err := r.Tags(t.Context(), namespace+"/app")
					if off < 0 {
						require.NoError(t, err)
						assert.NotEmpty(t, names)
						assert.Equal(t, l.limit+off, time.Since(start))
						return
					}
					var source *release.SourceError
					require.ErrorAs(t, err, &source)
					require.ErrorContains(t, err, l.want)
					assert.Equal(t, namespace, source.Host)
					assert.Equal(t, l.limit, time.Since(start))
				})
			})
		}
	}
}

// The token is part of the exchange: a poll has no additional time for it.
func TestLimitOfTimeWithAToken(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-1, 1} {
		synctest.Test(t, func(t *testing.T) {
			const namespace = "slow.example.com"
			const first = 20 * time.Second
			r, _ := newRegistry(t, certsD(t, namespace, plainHTTP(namespace)))
			asked := 0
			registry := slowHost(answers(first, func(int) string {
				if asked++; asked == 1 {
					return "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nWWW-Authenticate: Bearer realm=\"http://token.example.com/\"\r\n\r\n"
				}
				return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + digestHeader + ": " + testDigest + "\r\n\r\n"
			}))(t)
			body := `{"token":"anonymous-1"}`
			tokens := slowHost(answers(exchangeTimeout-2*first+off, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)))(t)
			r.client.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == "token.example.com:80" {
					return tokens(ctx, network, address)
				}
				return registry(ctx, network, address)
			}
			start := time.Now()
			_, err := r.Resolve(t.Context(), release.Reference{Repository: namespace + "/app", Tag: "1"})
			if off < 0 {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, exchangeTimeout, time.Since(start))
		})
	}
}

// A layer may pause for less than stallTimeout.
func TestLimitOfAStall(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-1, 1} {
		synctest.Test(t, func(t *testing.T) {
			const namespace = "slow.example.com"
			r, _ := newRegistry(t, certsD(t, namespace, plainHTTP(namespace)))
			pause := stallTimeout + off
			r.client.Dial = slowHost(answers("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n", pause, "la", pause, "ye", pause, "rs"))(t)
			start := time.Now()
			body, err := r.Fetch(t.Context(), namespace+"/app", ocispec.Descriptor{
				MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromString("layers"), Size: 6,
			})
			require.NoError(t, err)
			defer func() { _ = body.Close() }()
			data, err := io.ReadAll(body)
			if off < 0 {
				require.NoError(t, err)
				assert.Equal(t, "layers", string(data))
				assert.Equal(t, 3*pause, time.Since(start))
				return
			}
			require.ErrorIs(t, err, transport.Timeout("body: no data for 1m0s"))
			assert.Equal(t, stallTimeout, time.Since(start))
		})
	}
}

// A dial_timeout of hosts.toml applies to its host, and to no other that shares the connections.
func TestDialTimeoutOfAHost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	root := certsD(t, "hasty.example.com", plainHTTP(f.host())+"dial_timeout = \"1ns\"\n")
	addNamespace(t, root, "patient.example.com", plainHTTP(f.host())+"dial_timeout = \"1h\"\n")
	r, _ := newRegistry(t, root)
	poll := func(namespace string) error {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: namespace + "/app", Tag: "1"})
		return err
	}
	require.ErrorContains(t, poll("hasty.example.com"), "i/o timeout")
	require.NoError(t, poll("patient.example.com"))
	assert.Equal(t, uint64(1), r.Counts().Connections, "the first had none")
}

// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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

// slowHost serves connections one after another, in memory and so in the bubble's time, until the test ends.
func slowHost(serve func(context.Context, net.Conn)) func(*testing.T) transport.DialFunc {
	return func(t *testing.T) transport.DialFunc {
		return func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer func() { _ = server.Close() }()
				serve(t.Context(), server)
			}()
			return client, nil
		}
	}
}

// inMemory serves HTTP to every dialer, in the bubble's time, until the test ends.
func inMemory(t *testing.T, handler http.Handler) transport.DialFunc {
	t.Helper()
	conns := make(pipes)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(conns) }()
	t.Cleanup(func() { _ = server.Close() })
	return func(context.Context, string, string) (net.Conn, error) {
		client, conn := net.Pipe()
		conns <- conn
		return client, nil
	}
}

// pipes is a listener for in-memory connections.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error { close(p); return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "in memory"} }

// trickle writes start, and then a byte of filler every five seconds.
func trickle(start, filler string) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		for _, err := fmt.Fprint(conn, start); err == nil; _, err = fmt.Fprint(conn, filler) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(5 * time.Second): // the bubble's time
			}
		}
	}
}

func noConnection(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A pull has no time limit of its own, but all its requests wait for the token.
func TestSlowTokenServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const namespace = "slow.example.com"
		wantsToken := slowHost(trickle("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n"+
			"WWW-Authenticate: Bearer realm=\"http://token.example.com/\"\r\nConnection: close\r\n\r\n", ""))(t)
		tokens := slowHost(trickle("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", " "))(t)
		r, _ := newRegistry(t, certsD(t, namespace, plainHTTP(namespace)))
		r.client.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "token.example.com:80" {
				return tokens(ctx, network, address)
			}
			return wantsToken(ctx, network, address)
		}
		start := time.Now()
		_, err := r.Locate(t.Context(), namespace+"/app", testDigest)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, exchangeTimeout, time.Since(start))
	})
}

// A layer may be slow, but not slower than the setting.
func TestStalledLayer(t *testing.T) {
	t.Parallel()
	const size = 100
	header := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
	for _, layer := range []struct {
		title string
		serve func(context.Context, net.Conn)
		least int64
		want  error
		after time.Duration
	}{
		{"slow", trickle(header, "x"), 0, nil, 5 * time.Second * size},
		{"slow, but not too slow", trickle(header, "0123456789"), 2, nil, 5 * time.Second * size / 10},
		{"too slow", trickle(header, "x"), 1, transport.Timeout("body: less than 1 bytes a second over 1m0s (staging.leastSpeed)"), speedTime},
	} {
		t.Run(layer.title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const namespace = "slow.example.com"
				r, _ := newRegistry(t, certsD(t, namespace, plainHTTP(namespace)), func(o *Options) { o.LeastSpeed = layer.least })
				r.client.Dial = slowHost(layer.serve)(t)
				start := time.Now()
				body, err := r.Fetch(t.Context(), namespace+"/app", ocispec.Descriptor{
					MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromString("layer"), Size: size,
				})
				require.NoError(t, err)
				defer func() { _ = body.Close() }()
				data, err := io.ReadAll(body)
				if layer.want == nil {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, namespace+"/app: upstream "+namespace+": "+layer.want.Error())
					told, ok := errors.AsType[*release.SourceError](err)
					require.True(t, ok)
					assert.Equal(t, release.CauseTimeout, told.Cause)
				}
				assert.Equal(t, layer.want == nil, len(data) == size)
				assert.Equal(t, layer.after, time.Since(start))
			})
		})
	}
}

// A canceled request ends, and no other host is asked.
func TestCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, rec := newRegistry(t, certsD(t, "a.example.com", "server = \"http://a.example.com\"\n[host.\"http://m.example.com\"]\n"))
		r.client.Dial = noConnection
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Resolve(ctx, release.Reference{Repository: "a.example.com/app", Tag: "1"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, []string{"HEAD m.example.com /v2/app/manifests/1"}, rec.lines())
	})
}

func TestHostsAreReadAgainAfterAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRegistry(t, t.TempDir())
		first, err := r.hosts.Of("a.example.com")
		require.NoError(t, err)
		<-time.After(hosts.KeptFor - 1) // the bubble's time
		same, err := r.hosts.Of("a.example.com")
		require.NoError(t, err)
		assert.Same(t, first[0].Client, same[0].Client)
		<-time.After(1)
		again, err := r.hosts.Of("a.example.com")
		require.NoError(t, err)
		assert.NotSame(t, first[0].Client, again[0].Client)
	})
}

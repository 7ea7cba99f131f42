// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard is a log that reports each line.
type heard struct {
	mu    sync.Mutex
	lines []string
	each  chan string
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, string(p))
	h.each <- string(p)
	return len(p), nil
}

func (h *heard) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "")
}

// wait waits until the log contains a word.
func (h *heard) wait(word string) {
	for line := range h.each {
		if strings.Contains(line, word) {
			return
		}
	}
}

// runPort runs a port until the test ends. listen: nil for one that opens sockets.
func runPort(t *testing.T, h http.Handler, listen func() (net.Listener, error)) (*Port, *heard) {
	t.Helper()
	log := &heard{each: make(chan string, 1000)}
	p := NewPort(h, slog.New(slog.NewTextHandler(log, nil)))
	if listen != nil {
		p.listen = func(context.Context, string, string) (net.Listener, error) { return listen() }
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	t.Cleanup(func() { end(); <-ended })
	return p, log
}

// free returns an address without a listener.
func free(t *testing.T, host string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func get(t *testing.T, method, address, path string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	body, _ := io.ReadAll(resp.Body) // a refusal may be cut off
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(body)
}

var up = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") })

func TestPortServesMetricsAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "::1"} {
		p, log := runPort(t, up, nil)
		address := free(t, host)
		p.Listen(address)
		log.wait("serving metrics")
		for request, want := range map[string]int{
			"GET /metrics": 200, "HEAD /metrics": 200, "GET /": 404, "GET /v1/status": 404, "GET /debug/pprof/": 404,
			"POST /metrics": 405, "DELETE /metrics": 405, "GET /metrics/": 404, "POST /v1/apply": 404,
		} {
			method, path, _ := strings.Cut(request, " ")
			code, body := get(t, method, address, path)
			assert.Equal(t, want, code, request)
			if request == "GET /metrics" {
				assert.Equal(t, "up 1\n", body)
			}
		}
		code, _ := get(t, "GET", address, "/metrics?"+strings.Repeat("x", 3*maxHeader))
		assert.NotEqual(t, http.StatusOK, code)
	}
}

// A reload changes the address before the log reports it, and does not touch an unchanged one.
func TestPortMoves(t *testing.T) {
	t.Parallel()
	p, log := runPort(t, up, nil)
	first, second := free(t, "127.0.0.2"), free(t, "127.0.0.3") // of their own: nobody else gets a port when it is freed
	p.Listen(first)
	log.wait(first)
	p.Listen(first)
	p.Listen(second)
	log.wait(second)
	code, _ := get(t, "GET", first, "/metrics")
	assert.Zero(t, code, "closed")
	code, _ = get(t, "GET", second, "/metrics")
	assert.Equal(t, 200, code)
	assert.Equal(t, 2, strings.Count(log.all(), "serving metrics"))
	p.Listen("")
	p.Listen(first)
	log.wait(first)
	code, _ = get(t, "GET", second, "/metrics")
	assert.Zero(t, code)
}

// A port in use is logged once, and used when it is free.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Bool
		var tries atomic.Int32
		p, log := runPort(t, up, func() (net.Listener, error) {
			tries.Add(1)
			if !free.Load() {
				return nil, errors.New("address already in use")
			}
			return &pipes{closed: make(chan struct{})}, nil
		})
		p.Listen("127.0.0.1:9547")
		<-time.After(5*retryPort + time.Second) // the bubble's time
		synctest.Wait()
		assert.Equal(t, int32(6), tries.Load())
		assert.Equal(t, 1, strings.Count(log.all(), "cannot serve metrics"), log.all())
		assert.Contains(t, log.all(), "address already in use")
		free.Store(true)
		<-time.After(retryPort)
		synctest.Wait()
		assert.Contains(t, log.all(), "serving metrics")
		<-time.After(5 * retryPort)
		synctest.Wait()
		assert.Equal(t, int32(7), tries.Load())
	})
}

// A server that has ended on its own, for example because the kernel had no memory for a connection, is restarted like
// one whose port was in use.
func TestPortListensAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := &pipes{closed: make(chan struct{})}
		listeners := []*pipes{first, {closed: make(chan struct{}), waiting: make(chan net.Conn, 1)}}
		p, log := runPort(t, up, func() (net.Listener, error) {
			next := listeners[0]
			listeners = listeners[1:]
			return next, nil
		})
		p.Listen("127.0.0.1:9547")
		synctest.Wait()
		second := listeners[0]
		require.NoError(t, first.Close())
		<-time.After(retryPort) // the bubble's time
		synctest.Wait()
		require.Empty(t, listeners, log.all())
		c := second.dial()
		go func() { _, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") }()
		answer, err := io.ReadAll(c)
		require.NoError(t, err)
		assert.Contains(t, string(answer), "up 1")
		assert.Equal(t, 1, strings.Count(log.all(), "metrics port closed"), log.all())
	})
}

// A client that opens connections and sends nothing gets a limited number, for a limited time.
func TestPortIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, end := 0, make(chan struct{})
		var mu sync.Mutex
		l := &pipes{waiting: make(chan net.Conn, 100), closed: make(chan struct{})}
		p, _ := runPort(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			running++
			mu.Unlock()
			<-end
		}), func() (net.Listener, error) { return l, nil })
		p.Listen("127.0.0.1:9547")
		mute := l.dial()
		synctest.Wait()
		began := time.Now()
		_, err := mute.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, readTimeout, time.Since(began))

		for range maxClients + 1 {
			c := l.dial()
			go func() { _, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") }()
		}
		synctest.Wait()
		mu.Lock()
		assert.Equal(t, maxClients, running)
		mu.Unlock()
		close(end)
	})
}

// A client that does not read its answer is disconnected in favour of others.
func TestPortEndsConnectionsWithoutAReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{waiting: make(chan net.Conn, 100), closed: make(chan struct{})}
		p, _ := runPort(t, up, func() (net.Listener, error) { return l, nil })
		p.Listen("127.0.0.1:9547")
		for range maxClients {
			_, err := io.WriteString(l.dial(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
		}
		began, next := time.Now(), l.dial()
		hangUp := time.AfterFunc(time.Hour, func() { _ = next.Close() }) // the bubble's time
		defer hangUp.Stop()
		_, err := io.WriteString(next, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		require.NoError(t, err, "one more than there is room for")
		answer, err := io.ReadAll(next)
		require.NoError(t, err)
		assert.Contains(t, string(answer), "up 1")
		assert.Equal(t, writeTimeout, time.Since(began))
	})
}

// pipes is a listener in memory.
type pipes struct {
	waiting chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.waiting <- server
	return client
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.waiting:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() {
		close(p.closed)
		for { // the kernel closes connections that were not accepted
			select {
			case c := <-p.waiting:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

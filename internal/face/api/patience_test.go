// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// piped is a listener of connections in memory, on the clock of a bubble.
type piped struct {
	come chan net.Conn
	once sync.Once
	end  chan struct{}
}

func newPiped() *piped { return &piped{come: make(chan net.Conn), end: make(chan struct{})} }

func (p *piped) Accept() (net.Conn, error) {
	select {
	case conn := <-p.come:
		return conn, nil
	case <-p.end:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error   { p.once.Do(func() { close(p.end) }); return nil }
func (p *piped) Addr() net.Addr { return &net.UnixAddr{Name: "piped", Net: "unix"} }

// dial waits until the server takes the connection.
func (p *piped) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.come <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *piped) dialNet(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx) }

// inBubble serves one socket on the clock of a bubble.
func inBubble(t *testing.T, readOnly bool, d Daemon, f func(t *testing.T, p *piped)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPiped()
		serving(t, On(p, readOnly, d, slog.New(slog.DiscardHandler)))
		f(t, p)
	})
}

// A client that asks while a cycle runs waits for it as long as it takes, and hangs up by itself.
func TestWhoAsksWaitsAsLongAsItTakes(t *testing.T) {
	d := &daemon{check: func(func(status.Progress)) (status.Status, error) { return status.Status{}, nil }}
	d.context = func(ctx context.Context) {
		select {
		case <-ctx.Done():
			assert.Fail(t, "nobody has hung up", context.Cause(ctx))
		case <-time.After(time.Hour):
		}
	}
	inBubble(t, false, d, func(t *testing.T, p *piped) {
		_, err := clientOf(p).Check(t.Context(), nil)
		require.NoError(t, err)
	})
}

// Who does not read what was asked for makes room for others.
func TestWhoDoesNotReadMakesRoom(t *testing.T) {
	inBubble(t, true, &daemon{}, func(t *testing.T, p *piped) {
		for range maxReaders {
			conn, err := p.dial(t.Context())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			_, err = io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: daemon\r\n\r\n")
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		conn, err := p.dial(ctx)
		require.NoError(t, err, "one more than there is room for")
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: daemon\r\n\r\n")
		require.NoError(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		assert.Contains(t, line, "200 OK")
	})
}

// Who does not read its answer is cut off, also where nobody else wants the place.
func TestWhoDoesNotReadIsCutOff(t *testing.T) {
	inBubble(t, true, &daemon{}, func(t *testing.T, p *piped) {
		conn, err := p.dial(t.Context())
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: daemon\r\n\r\n")
		require.NoError(t, err)
		<-time.After(writeTimeout + time.Second)
		text, _ := io.ReadAll(conn)
		assert.Empty(t, text)
	})
}

// A client of the status socket has less time for its line.
func TestWhoIsSilentOnTheStatusSocketIsCutOff(t *testing.T) {
	for _, sent := range []string{"", "GET /v1/sta"} {
		t.Run(sent, func(t *testing.T) {
			inBubble(t, true, &daemon{}, func(t *testing.T, p *piped) {
				conn, err := p.dial(t.Context())
				require.NoError(t, err)
				began := time.Now()
				_, err = io.WriteString(conn, sent)
				require.NoError(t, err)
				_, _ = io.ReadAll(conn)
				assert.Equal(t, readerTimeout, time.Since(began))
			})
		})
	}
}

// A client that sends the head or the body of its request slowly is cut off; the head has the shorter time.
func TestWhoSendsSlowlyIsCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		sent string
		want time.Duration
	}{
		"nothing":        {"", 10 * time.Second},
		"half a head":    {"POST /v1/apply HTTP/1.1\r\nHost: dae", 10 * time.Second},
		"head, no body":  {"POST /v1/apply HTTP/1.1\r\nHost: daemon\r\nContent-Length: 10\r\n\r\n", 30 * time.Second},
		"half of a body": {"POST /v1/apply HTTP/1.1\r\nHost: daemon\r\nContent-Length: 10\r\n\r\n{\"ima", 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, false, &daemon{}, func(t *testing.T, p *piped) { // a call of it would panic
				conn, err := p.dial(t.Context())
				require.NoError(t, err)
				defer func() { _ = conn.Close() }()
				began := time.Now()
				_, err = io.WriteString(conn, c.sent)
				require.NoError(t, err)
				answer := bufio.NewReader(conn)
				line, err := answer.ReadString('\n') // a refusal, or the end
				assert.Equal(t, c.want, time.Since(began), "%q %v", line, err)
				assert.NotContains(t, line, "200 OK")
			})
		})
	}
}

// The head of a request is read up to a bound, on each socket; below it, it is answered.
func TestHeadsAreBounded(t *testing.T) {
	const slop = 4 << 10 // net/http reads so much beyond MaxHeaderBytes
	for name, c := range map[string]struct {
		bytes int
		want  string
	}{
		"below": {maxRequest - 1000, "200 OK"},
		"above": {maxRequest + slop, "431 Request Header Fields Too Large"},
	} {
		for socket, readOnly := range map[string]bool{"acting": false, "status": true} {
			t.Run(name+" "+socket, func(t *testing.T) {
				inBubble(t, readOnly, &daemon{}, func(t *testing.T, p *piped) {
					conn, err := p.dial(t.Context())
					require.NoError(t, err)
					defer func() { _ = conn.Close() }()
					go func() { // the server may stop reading before the end
						_, _ = io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: daemon\r\nX: "+strings.Repeat("x", c.bytes)+"\r\n\r\n")
					}()
					answer, err := io.ReadAll(conn)
					require.NoError(t, err)
					assert.Contains(t, string(answer), c.want)
				})
			})
		}
	}
}

// last is a listener that lets one client in while it is closed: accept(2) was there
// before close(2).
type last struct {
	*piped

	client chan net.Conn
}

func (l last) Accept() (net.Conn, error) {
	<-l.end
	select {
	case conn := <-l.client:
		<-time.After(time.Second) // of the bubble: until the server hears of it
		return conn, nil
	default:
		return nil, net.ErrClosed
	}
}

func TestWhoIsLetInAtTheEndIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := last{newPiped(), make(chan net.Conn, 1)}
		s := On(l, true, &daemon{}, slog.New(slog.DiscardHandler))
		served := make(chan error, 1)
		go func() { served <- s.Serve() }()
		ours, theirs := net.Pipe()
		l.client <- theirs
		answer := make(chan string, 1)
		go func() {
			_, _ = io.WriteString(ours, "GET /v1/status HTTP/1.1\r\nHost: daemon\r\n\r\n")
			text, _ := io.ReadAll(ours) // what is not there tells of the error
			answer <- string(text)
		}()
		synctest.Wait() // in accept(2)
		require.NoError(t, s.Drain(time.Minute))
		synctest.Wait()
		assert.Len(t, answer, 1, "before the end")
		assert.Contains(t, <-answer, "200 OK")
		require.NoError(t, <-served)
	})
}

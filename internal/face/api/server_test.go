// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Whoever holds all connections of the status socket loses the one that is open the longest.
func TestWhoHoldsTheStatusSocketKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	s := serveAt(t, path, true, &daemon{})
	var held []net.Conn
	for range 2 * maxReaders {
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		held = append(held, conn)
	}
	for range 10 {
		_, err := patient(path).Status(t.Context())
		require.NoError(t, err)
	}
	_, err := held[0].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	crowd := s.listener.(*crowd)
	crowd.mu.Lock()
	defer crowd.mu.Unlock()
	assert.LessOrEqual(t, len(crowd.open), maxReaders)
}

// A user with many connections loses the oldest of them, and others none.
func TestACrowdDropsWhoHasMost(t *testing.T) {
	t.Parallel()
	c := &crowd{room: 3}
	add := func(uid uint32) (*member, *member) {
		m := &member{of: c, uid: uid}
		return m, c.add(m)
	}
	root, dropped := add(0)
	assert.Nil(t, dropped)
	first, _ := add(1000)
	second, _ := add(1000)
	_, dropped = add(1000)
	assert.Same(t, first, dropped)
	_, dropped = add(1001)
	assert.Same(t, second, dropped, "also where another comes")
	assert.Equal(t, root, c.open[0])
	assert.Len(t, c.open, 3)
}

// A daemon that is killed breaks connections; its status is asked for once more, and an apply never.
func TestABrokenConnectionIsTriedOnceMoreForTheStatusOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks  int
		partial string
		ask     func(*Client) error
		asked   int32
		fails   bool
	}{
		"the status":             {1, "", statusOf, 2, false},
		"a half of it":           {1, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", statusOf, 2, false},
		"the status, never well": {9, "", statusOf, 2, true},
		"an apply": {1, "", func(c *Client) error {
			_, err := c.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
			return err
		}, 1, true},
		"a check": {1, "", func(c *Client) error { _, err := c.Check(t.Context(), nil); return err }, 1, true},
	} {
		path := filepath.Join(t.TempDir(), "s")
		listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		var asked atomic.Int32
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				answer := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
				if int(asked.Add(1)) <= c.breaks {
					answer = c.partial
				}
				_, _ = io.WriteString(conn, answer)
				_ = conn.Close()
			}
		}()
		err = c.ask(patient(path))
		assert.Equal(t, c.fails, err != nil, "%s: %v", name, err)
		assert.Equal(t, c.asked, asked.Load(), name)
	}
}

func statusOf(c *Client) error { _, err := c.Status(context.Background()); return err }

// Whoever holds all connections of the acting socket keeps others from it, and nobody from the one that reads.
func TestClientsOfTheActingSocketAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acting, status := filepath.Join(dir, "agent"), filepath.Join(dir, "status")
	serveAt(t, acting, false, &daemon{})
	serveAt(t, status, true, &daemon{})
	var first net.Conn
	for range maxClients {
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", acting)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if first == nil {
			first = conn
		}
	}
	_, err := patient(status).Status(t.Context())
	require.NoError(t, err)

	one, err := new(net.Dialer).DialContext(t.Context(), "unix", acting)
	require.NoError(t, err)
	t.Cleanup(func() { _ = one.Close() })
	_, err = fmt.Fprint(one, "GET /v1/status HTTP/1.1\r\nHost: agent\r\n\r\n")
	require.NoError(t, err)
	answered := make(chan error, 1)
	go func() {
		_, err := one.Read(make([]byte, 1))
		answered <- err
	}()
	for range 20 { // one would be time enough for an answer, if there was one
		_, err = patient(status).Status(t.Context())
		require.NoError(t, err)
	}
	assert.Empty(t, answered, "one more than there is room for waits")
	require.NoError(t, first.Close())
	require.NoError(t, <-answered)
}

// A socket whose connections others have is told apart from one without a daemon.
func TestASocketThatIsFullIsBusy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full := filepath.Join(dir, "status.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", full) // nobody accepts
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	c := NewClient(full)
	c.patience = 50 * time.Millisecond
	_, err = c.Status(t.Context())
	require.ErrorIs(t, err, ErrNoDaemon, "the service manager's socket, and no daemon yet")
	serveAt(t, filepath.Join(dir, "agent.sock"), false, &daemon{})
	_, err = c.Status(t.Context())
	require.ErrorIs(t, err, ErrBusy)
	require.NotErrorIs(t, err, ErrNoDaemon)
	for err == nil || !errors.Is(err, syscall.EAGAIN) { // fill the queue of the kernel
		fd, e := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
		require.NoError(t, e)
		t.Cleanup(func() { _ = syscall.Close(fd) })
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: full})
	}
	_, err = NewClient(full).Status(t.Context())
	require.ErrorIs(t, err, ErrBusy)
}

// What no verb reads is read to a bound, too.
func TestBodiesThatNobodyReadsAreBounded(t *testing.T) {
	t.Parallel()
	c := patient(serve(t, false, &daemon{})) // a call of check would panic
	_, err := c.do(t.Context(), http.MethodPost, "/v1/check", bytes.Repeat([]byte(" "), maxRequest+1))
	require.ErrorContains(t, err, "400")
}

// A client reads a status and an event of maxLine, and no more.
func TestAnswersThatAClientReadsAreBounded(t *testing.T) {
	t.Parallel()
	check := func(c *Client) error { _, err := c.Check(t.Context(), nil); return err }
	errShown := errors.New("shown")
	watch := func(c *Client) error {
		err := c.Watch(t.Context(), func(status.Status) error { return errShown })
		if errors.Is(err, errShown) {
			return nil
		}
		return err
	}
	for _, a := range []struct {
		title, answer string
		ask           func(*Client) error
		want          error // above the limit
	}{
		{"status", `{}`, statusOf, io.ErrUnexpectedEOF},
		{"event", `{"result":{"status":{}}}` + "\n", check, bufio.ErrTooLong},
		{"status of a watch", "{}\n", watch, bufio.ErrTooLong},
	} {
		for _, n := range []int{maxLine - 1, maxLine, maxLine + 1} {
			t.Run(fmt.Sprintf("%s %+d", a.title, n-maxLine), func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "s")
				listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
				require.NoError(t, err)
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, strings.Repeat(" ", n-len(a.answer))+a.answer)
				}))
				require.NoError(t, server.Listener.Close())
				server.Listener = listener
				server.Start()
				t.Cleanup(server.Close)
				if err = a.ask(patient(path)); n <= maxLine {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, a.want)
			})
		}
	}
}

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

// A client that reads nothing until the work is over gets the phases that there was room for, in order, the end of each
// pull and pod, and then the result.
func TestWhoReadsSlowlyHearsEachEnd(t *testing.T) {
	const many = 10 * maxReported
	d := &daemon{check: func(hear func(status.Progress)) (status.Status, error) {
		hear(status.Progress{Reference: "first", Phase: status.PhaseResolving})
		synctest.Wait() // the server waits for its reader
		for _, phase := range []string{status.PhaseResolving, status.PhaseDownloading, status.PhaseUnpacking} {
			for done := range many {
				hear(status.Progress{Reference: "first", Phase: phase, Done: int64(done)})
			}
		}
		for n := range many {
			pod := status.Progress{Reference: fmt.Sprint(n), Phase: status.PhaseVerifying}
			hear(pod)
			pod.Ended, pod.Phase = pod.Phase, status.PhaseDone
			hear(pod)
		}
		hear(status.Progress{Reference: "first", Phase: status.PhaseFailed})
		return status.Status{SchemaVersion: 1}, nil
	}}
	inBubble(t, false, d, func(t *testing.T, p *piped) {
		conn, err := p.dial(t.Context())
		require.NoError(t, err)
		_, err = io.WriteString(conn, "POST /v1/check HTTP/1.1\r\nHost: daemon\r\nContent-Length: 0\r\n\r\n")
		require.NoError(t, err)
		<-time.After(time.Hour) // all is said
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer answer.Body.Close()
		var first []string
		last := map[string]string{}
		for events := json.NewDecoder(answer.Body); ; {
			var e Event
			require.NoError(t, events.Decode(&e), "no result")
			if e.Result != nil {
				break
			}
			last[e.Progress.Reference] = e.Progress.Phase
			if e.Progress.Reference == "first" {
				first = append(first, e.Progress.Phase)
			}
		}
		assert.Equal(t, []string{"resolving", "resolving", "downloading", "unpacking", "failed"}, first)
		for n := range many {
			assert.Equal(t, status.PhaseDone, last[fmt.Sprint(n)], n)
		}
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

func TestReloadTellsHowItWent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(t.Context(), path, false, &daemon{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	answers := make(chan error, 2)
	answers <- nil
	answers <- errors.New("config.yaml:1: unknown key")
	s.Reload(func(context.Context) error { return <-answers })
	serving(t, s)
	c := patient(path)
	require.NoError(t, c.Reload(t.Context()))
	require.EqualError(t, c.Reload(t.Context()), "config.yaml:1: unknown key")
	require.ErrorContains(t, patient(serve(t, true, &daemon{})).Reload(t.Context()), "404", "the status socket only reads")
}

// serving has the server serve until the test ends.
func serving(t *testing.T, s *Server) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-ended)
	})
}

// handedOver is a socket as the service manager has one, and the descriptor that
// it gives to a daemon.
func handedOver(t *testing.T) (path string, next func() net.Listener) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	managers, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, managers.Close()) })
	return path, func() net.Listener {
		file, err := managers.(*net.UnixListener).File()
		require.NoError(t, err)
		given, err := net.FileListener(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		return given
	}
}

// A daemon ends and another one begins: who asked the first is answered, who
// comes between them is served by the second.
func TestARestartLosesNoClient(t *testing.T) {
	t.Parallel()
	path, next := handedOver(t)
	log := slog.New(slog.DiscardHandler)
	first := On(next(), true, &daemon{}, log)
	asked, answer := make(chan struct{}), make(chan struct{})
	first.Metrics(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_, _ = io.WriteString(w, "from the first")
	}))
	served, got, drained := make(chan error, 1), make(chan string, 1), make(chan error, 1)
	go func() { served <- first.Serve() }()
	go func() { got <- get(t, path) }()
	<-asked
	go func() { drained <- first.Drain(time.Minute) }()
	require.NoError(t, <-served, "it takes nobody any more")

	statuses := make(chan status.Status, 1)
	go func() {
		s, err := patient(path).Status(t.Context())
		assert.NoError(t, err)
		statuses <- s
	}()
	close(answer)
	assert.Equal(t, "from the first", <-got)
	require.NoError(t, <-drained)
	assert.FileExists(t, path, "the socket is the manager's")

	serving(t, On(next(), true, &daemon{status: status.Status{Reason: "from the second"}}, log))
	assert.Equal(t, "from the second", (<-statuses).Reason)
}

func get(t *testing.T, path string) string {
	t.Helper()
	body, err := patient(path).do(t.Context(), http.MethodGet, "/metrics", nil)
	if !assert.NoError(t, err) {
		return ""
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	assert.NoError(t, err)
	return string(text)
}

func TestTheEndWaitsForNoneTooLong(t *testing.T) {
	t.Parallel()
	path, next := handedOver(t)
	s := On(next(), true, &daemon{}, slog.New(slog.DiscardHandler))
	asked := make(chan struct{})
	s.Metrics(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	served, failed := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Serve() }()
	go func() {
		_, err := patient(path).do(t.Context(), http.MethodGet, "/metrics", nil)
		failed <- err
	}()
	<-asked
	require.NoError(t, s.Drain(time.Millisecond))
	require.NoError(t, <-served)
	require.ErrorIs(t, <-failed, io.EOF)
}

// The manager's socket takes clients while the daemon waits for its next start.
func TestNobodyBehindTheSocketIsNoDaemon(t *testing.T) {
	t.Parallel()
	path, _ := handedOver(t)
	c := patient(path)
	c.patience = time.Millisecond
	_, err := c.Status(t.Context())
	require.ErrorIs(t, err, ErrNoDaemon)
	require.ErrorContains(t, err, "no daemon answers within 1ms")

	ended, end := context.WithCancel(t.Context())
	end()
	_, err = patient(path).Status(ended)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrNoDaemon, "the caller has given up")
}

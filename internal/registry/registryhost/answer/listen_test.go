// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
)

// queue is a socket whose clients wait until a server accepts them, as in the kernel.
type queue struct {
	clients  chan net.Conn
	failures []error // of the next calls of Accept
	deadline *time.Timer
}

func newQueue() *queue {
	return &queue{clients: make(chan net.Conn, 4*places), deadline: time.NewTimer(time.Hour)}
}

func (q *queue) SetDeadline(at time.Time) error { q.deadline.Reset(time.Until(at)); return nil }

func (q *queue) Accept() (net.Conn, error) {
	if len(q.failures) > 0 {
		err := q.failures[0]
		q.failures = q.failures[1:]
		return nil, err
	}
	select {
	case conn := <-q.clients:
		return conn, nil
	case <-q.deadline.C:
		return nil, os.ErrDeadlineExceeded
	}
}

// connect returns the client's end.
func (q *queue) connect() net.Conn {
	ours, theirs := net.Pipe()
	q.clients <- ours
	return theirs
}

// head requests the tag of the table.
var head = requestOf("HEAD", ofVelum+velum.Tag+nsOfSUSE, oldContainerd)

// isAnswered reports whether the server answers a client's request.
func isAnswered(client net.Conn) bool {
	if _, err := io.WriteString(client, head); err != nil {
		return false
	}
	answer, _ := io.ReadAll(client)
	return strings.HasPrefix(string(answer), "HTTP/1.1 200 OK\r\n")
}

// serving runs a server on a queue until the returned function is called, which waits until the server has ended on its
// own.
func serving(t *testing.T, s *Server, q *queue) (ends func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(t.Context(), q, time.Now()) }()
	return func() { assert.NoError(t, <-ended) }
}

// How long each kind of slow client keeps its place.
func TestSlowClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	trickle := func(pause time.Duration) func(net.Conn) {
		return func(client net.Conn) {
			for _, b := range []byte(head) {
				if _, err := client.Write([]byte{b}); err != nil {
					return
				}
				<-time.After(pause)
			}
		}
	}
	say := func(text string) func(net.Conn) {
		return func(client net.Conn) { _, _ = io.WriteString(client, text) }
	}
	for name, c := range map[string]struct {
		client func(net.Conn)
		want   time.Duration
	}{
		"says nothing":             {func(net.Conn) {}, silence},
		"says a byte":              {say("H"), requestTime},
		"says half a line":         {say("HEAD /v2/"), requestTime},
		"says half its headers":    {say(strings.TrimSuffix(head, "\r\n")), requestTime},
		"has endless headers":      {say("HEAD / HTTP/1.1\r\nA: " + strings.Repeat("a", 2*maxRequest)), 0},
		"a byte each 0.2 s":        {trickle(200 * time.Millisecond), requestTime},
		"a byte each 0.01 s":       {trickle(10 * time.Millisecond), requestTime},
		"does not take its answer": {say(head), patience},
		"has gone":                 {func(client net.Conn) { _ = client.Close() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := server(t, oneTag())
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					c.client(theirs)
				}()
				begun := time.Now()
				s.serve(ours, func() {})
				assert.Equal(t, c.want, time.Since(begun))
				require.NoError(t, ours.Close())
				<-gone
				require.NoError(t, theirs.Close())
			})
		})
	}
}

// A client that is slow within the limits is answered.
func TestSlowClientWithinTheLimits(t *testing.T) {
	t.Parallel()
	s, _ := server(t, oneTag())
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		ends := serving(t, s, q)
		client := q.connect()
		<-time.After(silence - time.Millisecond)
		_, err := io.WriteString(client, head[:10])
		require.NoError(t, err)
		<-time.After(requestTime - silence)
		_, err = io.WriteString(client, head[10:])
		require.NoError(t, err)
		answer, err := io.ReadAll(client)
		require.NoError(t, err)
		assert.Contains(t, string(answer), "200 OK")
		ends()
	})
}

// However many clients hold connections, silently, with half a request or with an endless one, a client with a request
// is answered.
func TestCrowdDoesNotBlockAClient(t *testing.T) {
	t.Parallel()
	s, log := server(t, oneTag())
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		ends := serving(t, s, q)
		var crowd []net.Conn
		defer func() {
			for _, client := range crowd {
				_ = client.Close()
			}
		}()
		for round := range 3 {
			for n := range places {
				client := q.connect()
				crowd = append(crowd, client)
				if n%2 == 1 {
					go func() { _, _ = io.WriteString(client, head[:n%len(head)]) }()
				}
			}
			assert.True(t, isAnswered(q.connect()), "round %d", round)
		}
		ends()
		assert.Equal(t, 1, strings.Count(log.String(), "closed connections"), log)
	})
}

// A process ends after a second without a client. It is not resident, nor started again for each client.
func TestIdleProcessEnds(t *testing.T) {
	t.Parallel()
	s, _ := server(t, oneTag())
	synctest.Test(t, func(t *testing.T) {
		q, begun := newQueue(), time.Now()
		ends := serving(t, s, q)
		<-time.After(idle / 2)
		assert.True(t, isAnswered(q.connect()))
		ends()
		assert.Equal(t, idle/2+idle, time.Since(begun))
	})
}

// A process that always has clients also ends, before systemd would kill it. It answers the last clients, and later
// ones wait for the next process.
func TestProcessEndsAtItsMaximumAge(t *testing.T) {
	t.Parallel()
	s, _ := server(t, oneTag())
	synctest.Test(t, func(t *testing.T) {
		q, begun := newQueue(), time.Now()
		ends := serving(t, s, q)
		for time.Since(begun) < life-idle/2 {
			assert.True(t, isAnswered(q.connect()))
			<-time.After(idle / 4)
		}
		<-time.After(life - time.Since(begun) - time.Millisecond)
		slow, silent := q.connect(), q.connect()
		<-time.After(silence / 2)
		late := q.connect()
		assert.True(t, isAnswered(slow))
		ends()
		assert.Equal(t, life+silence-time.Millisecond, time.Since(begun), "the silent one was left as ever")
		require.NoError(t, silent.Close())
		assert.Len(t, q.clients, 1)
		ends = serving(t, s, q)
		assert.True(t, isAnswered(late))
		ends()
	})
}

// A process that took long to start serves for a while, and ends early, because systemd kills it at a certain age.
func TestSlowlyStartedProcessEndsEarly(t *testing.T) {
	t.Parallel()
	s, _ := server(t, oneTag())
	for age, want := range map[time.Duration]time.Duration{
		0: life, life / 2: life / 2, life - least: least, life: least, 2 * life: least,
	} {
		synctest.Test(t, func(t *testing.T) {
			q, begun := newQueue(), time.Now()
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(t.Context(), q, begun.Add(-age)) }()
			var over bool
			for !over {
				select {
				case err := <-ended:
					require.NoError(t, err)
					over = true
				case <-time.After(least / 5):
					assert.NoError(t, q.connect().Close())
				}
			}
			assert.Equal(t, want, time.Since(begun))
		})
	}
}

// Clients with a partial request at the end of a process do not delay the end.
func TestEndOfAProcessIsNotDelayed(t *testing.T) {
	t.Parallel()
	s, log := server(t, oneTag())
	synctest.Test(t, func(t *testing.T) {
		q, begun := newQueue(), time.Now()
		ends := serving(t, s, q)
		var slow []net.Conn
		for time.Since(begun) < life {
			client := q.connect()
			slow = append(slow, client)
			go func() { _, _ = io.WriteString(client, "HEAD") }()
			<-time.After(idle / 2)
		}
		ends()
		assert.Equal(t, life+silence, time.Since(begun))
		assert.NotContains(t, log.String(), "closed connections", "there was room")
		for _, client := range slow {
			require.NoError(t, client.Close())
		}
	})
}

// A stopped process ends with its current clients, before its maximum age.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	s, _ := server(t, oneTag())
	synctest.Test(t, func(t *testing.T) {
		q, begun := newQueue(), time.Now()
		ctx, stop := context.WithCancel(t.Context())
		client := q.connect()
		time.AfterFunc(silence/2, stop)
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, q, time.Now()) }()
		<-ctx.Done()
		assert.True(t, isAnswered(client))
		require.NoError(t, <-ended)
		assert.Equal(t, silence/2, time.Since(begun))
	})
}

// Processes that end as soon as they are idle, one after another, lose no client of their socket.
func TestNoClientIsLostBetweenProcesses(t *testing.T) {
	t.Parallel()
	s, _ := server(t, oneTag())
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	file, err := socket.(*net.TCPListener).File()
	require.NoError(t, err)
	defer file.Close()
	processes, isOver := 0, make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ; ; processes++ {
			select {
			case <-isOver:
				return
			default:
				process := NewServer(s.table.path, "", s.log)
				process.times = times{50 * time.Microsecond, time.Millisecond, time.Millisecond, time.Hour, time.Hour, time.Hour}
				assert.NoError(t, process.ServeFile(t.Context(), file))
			}
		}
	}()
	for range 500 {
		client, err := net.Dial("tcp", socket.Addr().String())
		require.NoError(t, err)
		assert.True(t, isAnswered(client))
		require.NoError(t, client.Close())
	}
	close(isOver)
	<-ended
	assert.Greater(t, processes, 1)
	require.NoError(t, socket.Close())
}

// A client that makes the server panic affects only its own connection.
func TestPanicEndsOneConnection(t *testing.T) {
	t.Parallel()
	s, log := server(t, oneTag())
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		ends := serving(t, s, q)
		for range 3 {
			ours, theirs := net.Pipe()
			q.clients <- panics{ours}
			_, err := theirs.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		}
		assert.True(t, isAnswered(q.connect()))
		ends()
		assert.Equal(t, 1, strings.Count(log.String(), "out of range"), log)
	})
}

type panics struct{ net.Conn }

func (panics) Read([]byte) (int, error) { panic("out of range") }

// If descriptors or memory run short, a client is disconnected for the next one.
func TestShortageOfResources(t *testing.T) {
	t.Parallel()
	s, log := server(t, oneTag())
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		short := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		q.failures = []error{short, short}
		ends := serving(t, s, q)
		assert.True(t, isAnswered(q.connect()))
		ends()

		q.failures = []error{errors.New("no socket")}
		require.ErrorContains(t, s.Serve(t.Context(), q, time.Now()), "local registry: no socket")
		assert.NotContains(t, log.String(), "closed connections", "nobody was there")
	})
}

// A client that sends requests endlessly does not fill the log.
func TestLogIsLimited(t *testing.T) {
	t.Parallel()
	s, log := server(t, oneTag())
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		ends := serving(t, s, q)
		for range maxLines + 7 {
			assert.True(t, isAnswered(q.connect()))
		}
		ends()
		assert.Equal(t, maxLines+1, strings.Count(log.String(), "\n"))
		assert.Contains(t, log.String(), "answers=7")
	})
}

func TestServeFileNeedsASocket(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	s, _ := server(t, table.Table{})
	require.ErrorContains(t, s.ServeFile(t.Context(), null), "/dev/null is not a listening socket")
}

// ended is a connection that records whether it was closed.
type ended struct {
	net.Conn

	is bool
}

func (c *ended) Close() error { c.is = true; return nil }

// full returns a full room and its guests.
func full() (*room, []*ended, []*guest) {
	r := newRoom()
	var clients []*ended
	var guests []*guest
	for range places {
		client := &ended{}
		clients, guests = append(clients, client), append(guests, r.enter(client))
	}
	return r, clients, guests
}

// The slowest guest is disconnected for the next client, one for each, and not before its grace is over.
func TestSlowestGuestIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, clients, _ := full()
		begun := time.Now()
		for n := range 3 {
			r.enter(&ended{})
			assert.Equal(t, grace, time.Since(begun))
			assert.Len(t, r.guests, places)
			assert.True(t, clients[n].is)
			assert.False(t, clients[n+1].is)
		}
		assert.Equal(t, 3, r.wereCut())
	})
}

// A guest that has sent its request is answered, and not disconnected.
func TestGuestWithARequestKeepsItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, clients, guests := full()
		r.hasAsked(guests[0])
		<-time.After(grace)
		r.enter(&ended{})
		assert.False(t, clients[0].is)
		assert.True(t, clients[1].is)

		for _, g := range r.guests {
			r.hasAsked(g)
		}
		go func() {
			<-time.After(10 * grace)
			r.leave(guests[0])
		}()
		begun := time.Now()
		r.enter(&ended{})
		assert.Equal(t, 10*grace, time.Since(begun), "the next waits for an answer")
		assert.Equal(t, 1, r.wereCut())
	})
}

// A guest that leaves frees its place at once.
func TestLeavingGuestFreesItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, clients, guests := full()
		begun := time.Now()
		go r.leave(guests[7])
		r.enter(&ended{})
		assert.Zero(t, time.Since(begun))
		assert.True(t, clients[7].is)
		assert.Zero(t, r.wereCut())
	})
}

func TestStartOfAProcess(t *testing.T) {
	t.Parallel()
	const line = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1000 100"
	for text, want := range map[string]time.Duration{
		line: 123450 * time.Millisecond, "7 (a) S 1 2": 0, "": 0, "7 (a) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 x 1": 0,
	} {
		at, ok := startOf([]byte(text))
		assert.Equal(t, want, at, text)
		assert.Equal(t, want != 0, ok, text)
	}
}

// The time is the kernel's: this process is older than a file that it creates, and a second call returns the same time.
func TestBorn(t *testing.T) {
	t.Parallel()
	stat, err := os.ReadFile("/proc/self/stat")
	require.NoError(t, err)
	_, ok := startOf(stat)
	require.True(t, ok, string(stat))
	first := born()
	assert.True(t, first.Before(time.Now()))
	assert.WithinDuration(t, first, born(), time.Minute)
}

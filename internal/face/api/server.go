// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Daemon is what the sockets give access to.
type Daemon interface {
	// Status is the node as the daemon knows it; it never waits.
	Status() status.Status
	// Check polls now.
	Check(ctx context.Context, onProgress func(status.Progress)) (status.Status, error)
	// ForgetCatalog forgets the verified version of the release catalog, and polls now.
	ForgetCatalog(ctx context.Context, onProgress func(status.Progress)) (status.Status, error)
	// ReleaseLock releases the fleet lock.
	ReleaseLock(ctx context.Context, onProgress func(status.Progress)) (status.Status, error)
	// EnableLocalRegistry adds the local registry to the hosts of a registry; with gate as the first one.
	EnableLocalRegistry(ctx context.Context, registry string, gate bool) (status.Status, error)
	// DisableLocalRegistry removes it.
	DisableLocalRegistry(ctx context.Context, registry string) (status.Status, error)
	// TryLock takes the fleet lock and releases it at once.
	TryLock(ctx context.Context, onProgress func(status.Progress)) (status.Status, error)
	// Apply approves and applies.
	Apply(ctx context.Context, req agent.ApplyRequest, onProgress func(status.Progress)) ([]status.Outcome, error)
	// Rollback returns to what ran well before.
	Rollback(ctx context.Context, which plan.Which, onProgress func(status.Progress)) ([]status.Outcome, error)
	// Hold keeps images from being applied until a time; zero: until Resume. It returns the repositories, or "*" for all.
	Hold(ctx context.Context, names []string, all bool, reason string, until time.Time) ([]string, error)
	// Resume removes holds, and returns those that existed, as Hold does.
	Resume(ctx context.Context, names []string, all bool) ([]string, error)
}

// Server serves one socket.
type Server struct {
	daemon   Daemon
	log      *slog.Logger
	listener net.Listener
	http     *http.Server
	mux      *http.ServeMux
	open     sync.WaitGroup // connections
	ended    chan struct{}  // Serve
}

// Listen opens the acting socket (mode 0600) or, with readOnly, the status
// socket (0666) at path. A socket left behind by a killed daemon is replaced;
// the caller holds the daemon's lock.
func Listen(ctx context.Context, path string, readOnly bool, d Daemon, log *slog.Logger) (*Server, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	mode := fs.FileMode(0o600)
	if readOnly {
		mode = 0o666
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), l.Close())
	}
	return On(l, readOnly, d, log), nil
}

// writeTimeout is how long a client of the status socket may take to read its
// answer, which fits into the kernel's buffer but on nodes with hundreds of images.
const writeTimeout = 30 * time.Second

// readerTimeout is how long a client of the status socket may take to send its request: a line.
const readerTimeout = 2 * time.Second

// On makes a server of a socket that listens already, which is closed by Close.
func On(l net.Listener, readOnly bool, d Daemon, log *slog.Logger) *Server {
	s := &Server{
		daemon: d, log: log, listener: netutil.LimitListener(peers{l}, maxClients), mux: http.NewServeMux(),
		ended: make(chan struct{}),
	}
	if readOnly {
		s.listener = &crowd{Listener: peers{l}, room: maxReaders}
	}
	s.routes(readOnly)
	s.http = &http.Server{
		Handler: s.mux, ConnState: s.connection, ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 30 * time.Second, MaxHeaderBytes: maxRequest, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	if readOnly { // work has no time limit; the status is at hand
		s.http.WriteTimeout = writeTimeout
		s.http.ReadHeaderTimeout = readerTimeout
	} else {
		s.http.ConnContext = withPeer
	}
	s.http.SetKeepAlivesEnabled(false) // 16 idle clients would keep all others out
	return s
}

// connection counts the connections that are not answered yet: each has one request.
func (s *Server) connection(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.open.Done()
	}
}

// Serve answers until Close or Drain. It is called once.
func (s *Server) Serve() error {
	defer close(s.ended)
	err := s.http.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("socket %s: %w", s.listener.Addr(), err)
}

// Close ends all connections, and removes the socket if Listen has made it.
func (s *Server) Close() error { return s.http.Close() }

// Drain is Close, but answers the accepted connections before, if that takes no longer
// than patience. http.Server.Shutdown would close a connection whose request has not
// been read yet.
func (s *Server) Drain(patience time.Duration) error {
	_ = s.listener.Close() // or it is closed already
	answered := make(chan struct{})
	go func() {
		<-s.ended // no connection is accepted any more
		s.open.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(patience):
	}
	return s.Close()
}

func (s *Server) routes(readOnly bool) {
	s.mux.HandleFunc("GET /v1/status", s.status)
	if readOnly {
		return
	}
	s.mux.HandleFunc("POST /v1/check", s.poll(s.daemon.Check))
	s.mux.HandleFunc("POST /v1/catalog/forget", s.poll(s.daemon.ForgetCatalog))
	s.mux.HandleFunc("POST /v1/lock/release", s.poll(s.daemon.ReleaseLock))
	s.mux.HandleFunc("POST /v1/lock/try", s.poll(s.daemon.TryLock))
	s.mux.HandleFunc("POST /v1/apply", handler(s, checkApply, outcomes(s.daemon.Apply)))
	s.mux.HandleFunc("POST /v1/rollback", handler(s, plan.Which.Check, outcomes(s.daemon.Rollback)))
	s.mux.HandleFunc("POST /v1/hold", handler(s, HoldRequest.check, s.hold))
	s.mux.HandleFunc("POST /v1/resume", handler(s, plan.Which.Check, s.resume))
}

// Metrics serves h at GET /metrics, on the status socket. It is called before Serve, and once.
func (s *Server) Metrics(h http.Handler) { s.mux.Handle("GET /metrics", h) }

// Reload calls f at POST /v1/reload, on the acting socket. It is called as Metrics is.
func (s *Server) Reload(f func(context.Context) error) {
	s.mux.HandleFunc("POST /v1/reload", func(w http.ResponseWriter, r *http.Request) {
		s.stream(w, r, func(ctx context.Context, _ func(status.Progress)) (ResultEvent, error) {
			return ResultEvent{}, f(ctx)
		})
	})
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(s.daemon.Status())
	if err != nil { // an empty body would be no answer
		s.log.Error("cannot write the status", "err", err)
		http.Error(w, "status: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(append(body, '\n')); err != nil {
		s.log.Debug("cannot send the status", "err", err)
	}
}

// work is what a request asks for.
type work func(ctx context.Context, onProgress func(status.Progress)) (ResultEvent, error)

// poll serves a request whose result is a status.
func (s *Server) poll(
	do func(ctx context.Context, onProgress func(status.Progress)) (status.Status, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.stream(w, r, func(ctx context.Context, onProgress func(status.Progress)) (result ResultEvent, err error) {
			status, err := do(ctx, onProgress)
			if err == nil || status.SchemaVersion != 0 { // else the daemon ends, and has none
				result.Status = &status
			}
			return result, err
		})
	}
}

// stream sends progress during the work, and its result at the end. A slow reader
// misses progress, never an end or the result, and does not delay the work.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, do work) {
	// The server notices the end of the connection only after the whole body was read.
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxRequest)); err != nil {
		http.Error(w, "request: "+err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	unheard := progress{added: make(chan struct{}, 1), byPhase: true}
	result := make(chan ResultEvent, 1)
	go func() {
		res, err := do(r.Context(), unheard.put)
		if err != nil {
			res.Error, res.Kind = err.Error(), kindOf(err)
			res.Unknown = res.Kind == KindUnknownImage
			if moved, is := errors.AsType[*plan.MovedError](err); is {
				res.Moved = moved.Moved
			}
		}
		outside.Hide(&res)
		result <- res
	}()
	flush := http.NewResponseController(w)
	send := func(e Event) {
		line, err := json.Marshal(e)
		if err != nil && e.Result != nil { // the end without a result would be none
			s.log.Error("cannot write the result", "request", r.URL.Path, "err", err)
			line, err = json.Marshal(Event{Result: &ResultEvent{Error: "result: " + err.Error(), Kind: KindFailed}})
		}
		if err == nil {
			_, err = w.Write(append(line, '\n'))
		}
		if err != nil {
			s.log.Debug("cannot send the event", "err", err)
		}
		_ = flush.Flush()
	}
	for {
		var end Event
		select {
		case <-unheard.added:
		case res := <-result:
			end.Result = &res
		}
		for _, p := range unheard.take() { // also what came before the result
			send(Event{Progress: &p})
		}
		if end.Result != nil {
			send(end)
			return
		}
	}
}

// crowd is a listener with room for a number of connections. When it is full, the next one takes the place of the one
// that is open the longest of the user who has most: whoever holds connections keeps no other user out.
type crowd struct {
	net.Listener
	room int

	mu   sync.Mutex
	open []*member // the longest open first
}

// member is a connection of a crowd.
type member struct {
	net.Conn

	of  *crowd
	uid uint32
}

// Accept waits for the next connection.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	m := &member{Conn: conn, of: c, uid: nobody}
	if from, known := conn.RemoteAddr().(peer); known {
		m.uid = from.uid
	}
	if dropped := c.add(m); dropped != nil {
		_ = dropped.Close()
	}
	return m, nil
}

// add returns the member whose place m has taken; nil: there was room.
func (c *crowd) add(m *member) (dropped *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, m)
	if len(c.open) <= c.room {
		return nil
	}
	has := map[uint32]int{}
	for _, o := range c.open {
		has[o.uid]++
	}
	dropped = c.open[0]
	for _, o := range c.open {
		if has[o.uid] > has[dropped.uid] {
			dropped = o
		}
	}
	c.remove(dropped)
	return dropped
}

// remove takes a member out. The caller holds the lock.
func (c *crowd) remove(m *member) {
	c.open = slices.DeleteFunc(c.open, func(o *member) bool { return o == m })
}

// Close ends the connection.
func (m *member) Close() error {
	m.of.mu.Lock()
	m.of.remove(m)
	m.of.mu.Unlock()
	return m.Conn.Close()
}

// personOf is the person with a uid, with the name that /etc/passwd has for it.
func personOf(via string, uid uint32) status.Actor {
	a := status.Actor{Kind: status.ByPerson, Via: via, UID: &uid}
	if known, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		a.User = outside.Line(known.Username, maxWord)
	}
	return a
}

// peers is a listener on a unix socket whose connections know who has connected: their remote address is a peer.
type peers struct{ net.Listener }

// Accept waits for the next connection.
func (p peers) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	if unix, is := conn.(*net.UnixConn); is {
		if uid, is := uidOf(unix); is {
			return peerConn{conn, peer{conn.RemoteAddr(), uid}}, err
		}
	}
	return conn, err
}

// peerConn is a connection of a known peer.
type peerConn struct {
	net.Conn

	from peer
}

// RemoteAddr is the peer.
func (c peerConn) RemoteAddr() net.Addr { return c.from }

// peer is the process at the other end of a connection, as it was when it connected.
type peer struct {
	net.Addr

	uid uint32
}

// uidOf asks the kernel for the peer (unix(7), SO_PEERCRED).
func uidOf(conn *net.UnixConn) (uid uint32, ok bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		var cred *syscall.Ucred
		if cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			uid, ok = cred.Uid, true
		}
	})
	return uid, ok && err == nil
}

// withPeer is the context of the requests of a connection.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	from, known := conn.RemoteAddr().(peer)
	if !known {
		return status.WithActor(ctx, status.Actor{Kind: status.ByPerson, Via: status.ViaSocket})
	}
	return status.WithActor(ctx, personOf(status.ViaSocket, from.uid))
}

// SPDX-License-Identifier: Apache-2.0

// Package answer answers containerd's requests to the node's local registry, for the program that systemd starts when a
// client connects.
//
// It answers the HEAD of a manifest from the table and has no content: containerd does not fetch content that is on the
// node. It refuses unknown requests so that containerd asks the next host, and never in a way that makes it send a
// login. So other programs on the node can learn only which floating tags the node follows, and their digests.
//
// Any program on the node can connect, and a container's start waits for the answer. So the program has no other code
// of the agent, starts in 2 ms, and imports only the standard library and the table's format. It reads requests without
// net/http, whose parser is the judge in the tests.
//
// Why one process for all clients: with Accept=yes any user who held 512 connections kept containerd out. It closes the
// slowest connection at 512, and exits after a second without a client, or after 3 s.
package answer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
)

// Server answers the clients of the local registry's socket: one request per connection.
type Server struct {
	journalDir string
	log        *slog.Logger
	times      times
	panicked   sync.Once // logs a panic once per process

	// Work that does not wait for a client is serialized: each goroutine that waits for a disk would take one of the
	// few threads.
	mu      sync.Mutex
	table   tableFile
	answers int // served ones that may be logged
}

// times are time limits.
type times struct{ idle, life, least, silence, request, patience time.Duration }

// NewServer returns a server that answers from the table at a path, and records answers in a directory (empty:
// nowhere).
func NewServer(path, journalDir string, log *slog.Logger) *Server {
	return &Server{
		table: tableFile{path: path}, journalDir: journalDir, log: log,
		times: times{idle: idle, life: life, least: least, silence: silence, request: requestTime, patience: patience},
	}
}

// serve answers one request. It disconnects a client that sends nothing for 0.3 s, has not sent its request after 1 s,
// or does not read its answer: such clients would keep containerd from the local registry. asked is called when the
// request has arrived.
func (s *Server) serve(conn net.Conn, asked func()) {
	defer func() {
		// One client must not end the process for all others.
		if cause := recover(); cause != nil {
			s.panicked.Do(func() { s.log.Error("cannot answer the request", "panic", fmt.Sprint(cause)) })
		}
	}()
	begun := time.Now()
	if err := conn.SetDeadline(begun.Add(s.times.patience)); err != nil {
		return // it has left, or was disconnected
	}
	request, err := s.awaitRequest(conn, begun)
	if err != nil {
		return // an invalid request gets no answer
	}
	asked()
	_, _ = io.WriteString(conn, s.respond(request)) // a client that has left needs none
}

// respond decides about a request, and records the answer before it is sent, so that a client with the answer finds it
// recorded. Requests are parsed one at a time, because a parsed one can need many times the memory of its bytes.
func (s *Server) respond(request []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := parse(request)
	if err != nil {
		return ""
	}
	t, changed, err := s.table.get()
	if err != nil && changed {
		s.log.Warn("cannot use the table of the local registry", "err", err)
	}
	result, entry := answer(r, t)
	if r.agent != AgentName {
		s.note(result, entry)
	}
	return response(result, entry, r.agent)
}

// note records an answer. Any local user may send requests at any rate, so the number of logged answers per process is
// limited.
func (s *Server) note(result Result, entry table.Entry) {
	if s.journalDir != "" {
		Note(s.journalDir, result, entry, time.Now())
	}
	if result != Served {
		return
	}
	if s.answers++; s.answers <= maxLines {
		s.log.Info("manifest served from the node", "image", entry.Image(), "digest", entry.Digest)
	}
}

// awaitRequest reads the request line and the headers, on a connection that began at begun. containerd sends them as
// soon as it is connected.
func (s *Server) awaitRequest(conn net.Conn, begun time.Time) ([]byte, error) {
	request := make([]byte, 0, usualRequest)
	limit := s.times.silence
	for !bytes.Contains(request, []byte("\r\n\r\n")) {
		if len(request) == maxRequest {
			return nil, errors.New("too long")
		}
		if err := conn.SetReadDeadline(begun.Add(limit)); err != nil {
			return nil, err
		}
		request = slices.Grow(request, 1)
		n, err := conn.Read(request[len(request):min(cap(request), maxRequest)])
		if err != nil {
			return nil, err
		}
		request = request[:len(request)+n]
		limit = s.times.request
	}
	return request, nil
}

// listener is a *net.TCPListener.
type listener interface {
	Accept() (net.Conn, error)
	SetDeadline(time.Time) error
}

// ServeFile serves the listening socket in file, which systemd passes to a service with StandardInput=socket.
func (s *Server) ServeFile(ctx context.Context, file *os.File) error {
	l, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("local registry: %s is not a listening socket: %w", file.Name(), err)
	}
	defer func() { _ = l.Close() }() // systemd still has the socket open
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("local registry: %s is a socket of %s: want tcp", file.Name(), l.Addr().Network())
	}
	return s.Serve(ctx, tcp, born())
}

// Serve answers all clients until no client has come for a second, until the process, started at born, is 3 s old, or
// until ctx ends. Later clients wait in the socket, for which systemd starts the next process: so no client is lost, no
// process stays resident, and systemd detects a hanging process by its age.
func (s *Server) Serve(ctx context.Context, l listener, born time.Time) error {
	r := newRoom()
	// On a booting node a program may take seconds to start.
	end := born.Add(s.times.life)
	if least := time.Now().Add(s.times.least); end.Before(least) {
		end = least
	}
	err := s.admit(ctx, l, r, end)
	r.end(s.times.silence)
	s.sayWhatWasTooMuch(r)
	if err != nil {
		return fmt.Errorf("local registry: %w", err)
	}
	return nil
}

// admit accepts clients until it is time to end.
func (s *Server) admit(ctx context.Context, l listener, r *room, end time.Time) error {
	defer context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })()
	for time.Now().Before(end) {
		deadline := time.Now().Add(s.times.idle)
		if deadline.After(end) {
			deadline = end
		}
		if err := l.SetDeadline(deadline); err != nil || ctx.Err() != nil {
			return err
		}
		conn, err := l.Accept()
		switch {
		case err == nil:
			s.welcome(r, conn)
		case isShortage(err):
			r.makePlace()
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case r.isEmpty():
			return nil
		}
	}
	return nil
}

// welcome serves a client concurrently.
func (s *Server) welcome(r *room, conn net.Conn) {
	g := r.enter(conn)
	go func() {
		defer r.leave(g)
		s.serve(g, func() { r.hasAsked(g) })
	}()
}

// sayWhatWasTooMuch logs one line for each limit that clients have exceeded.
func (s *Server) sayWhatWasTooMuch(r *room) {
	if n := r.wereCut(); n > 0 {
		s.log.Warn("closed connections to the local registry: too many clients at once", "clients", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.answers - maxLines; n > 0 {
		s.log.Warn("served more manifests than are logged here", "answers", n)
	}
}

// isShortage reports whether accept(2) failed for lack of a resource that clients release when they leave.
func isShortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM)
}

// room has a place for each client being served. When all are taken, the next client replaces the slowest, which has
// been there longest without sending its request: so a user who holds connections cannot keep others out.
type room struct {
	left chan struct{} // a client has left since the last check
	all  sync.WaitGroup

	mu     sync.Mutex
	guests []*guest // in order of arrival
	cut    int
}

// guest is a client in a room.
type guest struct {
	net.Conn

	since time.Time
	asked bool // it has sent its request and is about to be answered
}

func newRoom() *room { return &room{left: make(chan struct{}, 1)} }

// enter gives a client a place as soon as there is one.
func (r *room) enter(conn net.Conn) *guest {
	g := &guest{Conn: conn}
	for {
		wait := r.tryEnter(g)
		if wait == 0 {
			return g
		}
		r.await(wait)
	}
}

// tryEnter returns when to try again; zero: the guest has a place.
func (r *room) tryEnter(g *guest) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.guests) >= places {
		if wait = r.cutSlowest(); wait > 0 {
			return wait
		}
	}
	g.since = time.Now()
	r.guests = append(r.guests, g)
	r.all.Add(1)
	return 0
}

// makePlace waits for a place, and disconnects the slowest guest for it.
func (r *room) makePlace() {
	r.mu.Lock()
	wait := r.cutSlowest()
	r.mu.Unlock()
	r.await(max(wait, grace))
}

// cutSlowest makes a place, or returns when to try again: each guest has grace for its request, so that a sudden crowd
// waits in the socket, and guests that have sent their request are answered. The caller holds the lock.
func (r *room) cutSlowest() (wait time.Duration) {
	slowest := slices.IndexFunc(r.guests, func(g *guest) bool { return !g.asked })
	if slowest < 0 {
		return grace
	}
	if wait = grace - time.Since(r.guests[slowest].since); wait > 0 {
		return wait
	}
	_ = r.guests[slowest].Close()
	r.guests = slices.Delete(r.guests, slowest, slowest+1)
	r.cut++
	return 0
}

// hasAsked is called when the request of a guest has arrived.
func (r *room) hasAsked(g *guest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.asked = true
}

// leave ends a client's connection.
func (r *room) leave(g *guest) {
	_ = g.Close()
	r.mu.Lock()
	r.guests = slices.DeleteFunc(r.guests, func(o *guest) bool { return o == g })
	r.mu.Unlock()
	select {
	case r.left <- struct{}{}:
	default:
	}
	r.all.Done()
}

// await waits until a client leaves, or for at most limit.
func (r *room) await(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.left:
	case <-timer.C:
	}
}

// end gives guests some time to be answered, and then disconnects them.
func (r *room) end(limit time.Duration) {
	for last := time.Now().Add(limit); !r.isEmpty() && time.Now().Before(last); {
		r.await(time.Until(last))
	}
	r.mu.Lock()
	for _, g := range r.guests {
		_ = g.Close()
	}
	r.mu.Unlock()
	r.all.Wait()
}

func (r *room) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.guests) == 0
}

// wereCut returns how many guests were disconnected for others.
func (r *room) wereCut() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut
}

// born returns the start time of this process, which may be long before its first line: systemd counts its age from
// there. If it is unknown, born returns now.
func born() time.Time {
	now := time.Now()
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return now
	}
	at, ok := startOf(stat)
	age := sinceBoot() - at
	if !ok || age < 0 {
		return now
	}
	return now.Add(-age)
}

// sinceBoot returns the time since the boot; zero if it is unknown. Package syscall has no call for the clock, and the
// sandbox hides /proc/uptime.
func sinceBoot() time.Duration {
	const clockBoottime = 7
	var t syscall.Timespec
	//nolint:gosec // G103: the system call writes its result there
	_, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0)
	if failed != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}

// startOf returns the start time of a process, since the boot, from its stat file (proc_pid_stat(5)).
func startOf(stat []byte) (at time.Duration, ok bool) {
	const (
		field = 22 - 3 // after the name, which may contain blanks and parentheses
		tick  = time.Second / 100
	)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= field {
		return 0, false
	}
	ticks, err := strconv.ParseInt(string(fields[field]), 10, 64)
	return time.Duration(ticks) * tick, err == nil
}

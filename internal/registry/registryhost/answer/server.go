// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

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

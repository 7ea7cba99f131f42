// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// Server answers the clients of the own host's socket: one request for each connection.
type Server struct {
	table      *nodefile.Cached[ownhost.Table]
	answersDir string
	log        *slog.Logger
	times      times
	panicked   sync.Once // says so, for all of a process

	// What does not wait for a client goes one by one: each that waits for a disk would take a thread of the few.
	mu      sync.Mutex
	answers int // that were served and may have a line in the log
}

// times are how long something takes at most.
type times struct{ idle, life, least, silence, request, patience time.Duration }

// NewServer answers from the table at a path, and notes answers in a directory (empty: nowhere).
func NewServer(table, answersDir string, log *slog.Logger) *Server {
	return &Server{
		table:      &nodefile.Cached[ownhost.Table]{Path: table, Limit: maxTable, Parse: parseTable},
		answersDir: answersDir, log: log,
		times: times{idle: idle, life: life, least: least, silence: silence, request: requestTime, patience: patience},
	}
}

// serve answers one request. A client that sends nothing for 0.3 s, has not sent its request after 1 s, or does not
// take its answer, is left: whoever holds connections keeps containerd from the own host. asked is called when the
// request is there.
func (s *Server) serve(conn net.Conn, asked func()) {
	defer func() {
		// What one client sends must not end the answers for all others.
		if cause := recover(); cause != nil {
			s.panicked.Do(func() { s.log.Error("request not answered", "panic", fmt.Sprint(cause)) })
		}
	}()
	begun := time.Now()
	if err := conn.SetDeadline(begun.Add(s.times.patience)); err != nil {
		return // it has gone, or was cut
	}
	request, err := s.awaitRequest(conn, begun)
	if err != nil {
		return // what is no request gets no answer
	}
	asked()
	_, _ = io.WriteString(conn, s.respond(request)) // a client that has gone needs none
}

// respond decides about a request, and notes the answer before it is sent: who has it finds it noted. Requests are
// parsed one by one, as a parsed one can take many times the memory of its bytes.
func (s *Server) respond(request []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := readRequest(bytes.NewReader(request))
	if err != nil {
		return ""
	}
	table, changed, err := s.table.Get()
	if err != nil && changed {
		s.log.Warn("table of the own host not used", "err", err)
	}
	result, entry := answer(r, table)
	if r.UserAgent() != agentName {
		s.note(result, entry)
	}
	return response(result, entry, r.UserAgent())
}

// note notes an answer. Any local user may ask at any rate, so a process logs only so many.
func (s *Server) note(result Result, entry ownhost.Entry) {
	if s.answersDir != "" {
		note(s.answersDir, result, entry, time.Now())
	}
	if result != Served {
		return
	}
	if s.answers++; s.answers <= maxLines {
		s.log.Info("manifest answered from the node", "image", imageOf(entry), "digest", entry.Digest)
	}
}

// awaitRequest reads the line and the headers of a request, on a connection that began at a time. containerd sends them
// as soon as it is connected.
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

// readRequest reads the line and the headers of a request.
func readRequest(from io.Reader) (*http.Request, error) {
	return http.ReadRequest(bufio.NewReader(io.LimitReader(from, maxRequest)))
}

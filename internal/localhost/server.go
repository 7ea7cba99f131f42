// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"
)

// Server answers the one request of a connection.
type Server struct {
	Table      string // the path of the table
	AnswersDir string // where answers are noted; empty: nowhere
	Log        *slog.Logger
}

// ServeFile serves the connection that file is, as systemd gives it to a service with Accept=yes.
func (s Server) ServeFile(file *os.File) error {
	conn, err := net.FileConn(file)
	if err != nil {
		return fmt.Errorf("own host: %s is no connection: %w", file.Name(), err)
	}
	return s.Serve(conn)
}

// Serve answers one request and closes the connection, in 4 s at most. A client that asks for nothing, or too slowly,
// is no error.
func (s Server) Serve(conn net.Conn) error {
	defer func() { _ = conn.Close() }()
	now := time.Now()
	if err := conn.SetDeadline(now.Add(patience)); err != nil {
		return fmt.Errorf("own host: %w", err)
	}
	table, err := ReadTable(s.Table)
	if err != nil {
		s.Log.Warn("table of the own host not used", "err", err)
	}
	r, err := readRequest(conn)
	if err != nil {
		return nil // what is no request gets no answer
	}
	result, entry := answer(r, table)
	if s.AnswersDir != "" && r.UserAgent() != agentName {
		note(s.AnswersDir, result, entry, now) // before the answer, so that who has one finds it there
	}
	_, _ = io.WriteString(conn, response(result, entry, r.UserAgent())) // a client that has gone needs none
	if result == Served && r.UserAgent() != agentName {
		s.Log.Info("manifest answered from the node", "image", imageOf(entry), "digest", entry.Digest)
	}
	return nil
}

// readRequest reads the line and the headers of a request.
func readRequest(conn io.Reader) (*http.Request, error) {
	return http.ReadRequest(bufio.NewReader(io.LimitReader(conn, maxRequest)))
}

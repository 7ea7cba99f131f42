// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// watchRest is the time between two lines of a watch, so that the progress of a pull does not fill the screen.
const watchRest = 250 * time.Millisecond

// ErrWatchEnded is returned when the daemon, or a daemon with too many clients, has ended a watch.
var ErrWatchEnded = errors.New("the daemon ended the connection")

// Watch serves GET /v1/watch: the status now, and again when it or the progress changes, one JSON object a line. It is
// called as Metrics is.
func (s *Server) Watch(d Watched) {
	s.mux.HandleFunc("GET /v1/watch", func(w http.ResponseWriter, r *http.Request) { s.watch(w, r, d) })
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, d Watched) {
	progressed := make(chan struct{}, 1)
	defer d.Listen(func(status.Progress) {
		select {
		case progressed <- struct{}{}:
		default:
		}
	})()
	w.Header().Set("Content-Type", "application/x-ndjson")
	control := http.NewResponseController(w)
	rest := time.NewTimer(watchRest)
	defer rest.Stop()
	var last []byte
	for {
		changed := d.Changed()
		line, err := json.Marshal(d.Status())
		if err != nil {
			s.log.Error("cannot write the status", "err", err)
			return
		}
		if !bytes.Equal(line, last) {
			last = line
			_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // the time of this line, not of the whole answer
			if _, err = w.Write(append(line, '\n')); err == nil {
				err = control.Flush()
			}
			if err != nil {
				s.log.Debug("cannot send the status", "err", err)
				return
			}
		}
		select {
		case <-changed:
		case <-progressed:
		case <-r.Context().Done():
			return
		case <-s.ended:
			return
		}
		rest.Reset(watchRest)
		select {
		case <-rest.C:
		case <-r.Context().Done():
			return
		case <-s.ended:
			return
		}
	}
}

// Watch calls show with the status now, and again when it or the progress changes, until ctx or the connection ends.
func (c *Client) Watch(ctx context.Context, show func(status.Status) error) error {
	body, err := c.do(ctx, http.MethodGet, "/v1/watch", nil)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		var s status.Status
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("socket %s: status: %w", c.path, err)
		}
		if err := show(s); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil && !isBroken(err) {
		return fmt.Errorf("socket %s: %w", c.path, err)
	}
	return fmt.Errorf("socket %s: %w", c.path, ErrWatchEnded)
}

// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// watching serves a watch on the clock of a bubble.
func watching(t *testing.T, f func(t *testing.T, d *watched, p *piped, s *Server)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, p := newWatched(&daemon{status: status.Status{Reason: "first"}}), newPiped()
		s := On(p, true, d, slog.New(slog.DiscardHandler))
		s.Watch(d)
		serving(t, s)
		f(t, d, p, s)
	})
}

func clientOf(p *piped) *Client {
	c := NewClient("piped")
	c.http.Transport.(*http.Transport).DialContext = p.dialNet
	return c
}

// A watch sends each change once, and nothing while nothing changes.
func TestAWatchSendsEachChange(t *testing.T) {
	watching(t, func(t *testing.T, d *watched, p *piped, _ *Server) {
		var seen []string
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- clientOf(p).Watch(ctx, func(s status.Status) error {
				text := s.Reason
				if s.Progress != nil {
					text += " " + s.Progress.Phase
				}
				seen = append(seen, text)
				return nil
			})
		}()
		pass := func() { <-time.After(time.Hour); synctest.Wait() }
		pass()
		d.become(status.Status{Reason: "second"})
		pass()
		asking := status.Progress{Phase: "asking"}
		d.now.Progress = &asking
		d.say(asking)
		pass()
		d.say(asking) // a heartbeat
		pass()
		d.become(status.Status{Reason: "third"})
		d.become(status.Status{Reason: "fourth", Progress: &asking})
		pass()
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		assert.Equal(t, []string{"first", "second", "second asking", "fourth asking"}, seen)
	})
}

// The end of the daemon ends its watches at once: they do not use up the time that other clients have.
func TestTheEndOfTheDaemonEndsAWatch(t *testing.T) {
	watching(t, func(t *testing.T, _ *watched, p *piped, s *Server) {
		ended := make(chan error, 1)
		go func() { ended <- clientOf(p).Watch(t.Context(), func(status.Status) error { return nil }) }()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, s.Drain(time.Hour))
		require.ErrorIs(t, <-ended, ErrWatchEnded)
		assert.Less(t, time.Since(began), time.Minute)
	})
}

// An error of who shows the status ends the watch.
func TestWhoShowsAWatchEndsIt(t *testing.T) {
	wrong := errors.New("closed pipe")
	watching(t, func(t *testing.T, _ *watched, p *piped, _ *Server) {
		require.ErrorIs(t, clientOf(p).Watch(t.Context(), func(status.Status) error { return wrong }), wrong)
	})
}

// A client that does not read is cut off, also in the middle of a watch.
func TestAWatchThatIsNotReadIsCutOff(t *testing.T) {
	watching(t, func(t *testing.T, d *watched, p *piped, _ *Server) {
		conn, err := p.dial(t.Context())
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET /v1/watch HTTP/1.1\r\nHost: daemon\r\n\r\n")
		require.NoError(t, err)
		read := bufio.NewReader(conn)
		for line := ""; line != "\r\n"; {
			line, err = read.ReadString('\n')
			require.NoError(t, err)
		}
		<-time.After(2 * writeTimeout) // nothing is written, so nothing is cut off
		d.become(status.Status{Reason: "second"})
		<-time.After(2 * writeTimeout)
		rest, _ := io.ReadAll(read)
		assert.NotContains(t, string(rest), "second")
	})
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errNone = errors.New("connection refused")

// TestOutages checks that Down is the time from the last answer before the first gap to the first answer after the last
// gap: an answer between two gaps does not end the outage.
func TestOutages(t *testing.T) {
	t.Parallel()
	at := func(step int) time.Time { return time.Unix(0, 0).Add(time.Duration(step) * probeInterval) }
	for name, c := range map[string]struct {
		seen  []string // in sequence, 10 ms apart; empty: no answer
		want  Outage
		wrong string
	}{
		"none":            {seen: []string{"", "a", "a"}, wrong: `no outage; it answers "a"`},
		"not over":        {seen: []string{"a", "", "b", ""}, wrong: "no answer since "},
		"somebody else":   {seen: []string{"a", "", "c"}, wrong: `it answers "c"`},
		"a gap":           {seen: []string{"a", "a", "", "", "b", "b"}, want: Outage{"a", "b", at(1), at(4)}},
		"without a gap":   {seen: []string{"a", "b"}, want: Outage{"a", "b", at(0), at(1)}},
		"the same answer": {seen: []string{"b", "", "b"}, want: Outage{"b", "b", at(0), at(2)}},
		"fell":            {seen: []string{"a", "", "b", "b", "", "b", "b"}, want: Outage{"a", "b", at(0), at(5)}},
		"went back":       {seen: []string{"a", "", "b", "", "a", "b"}, want: Outage{"a", "b", at(0), at(5)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &Prober{}
			for step, answer := range c.seen {
				var err error
				if answer == "" {
					err = errNone
				}
				p.saw(answer, err, at(step))
			}
			got, err := p.since("b")
			if c.wrong != "" {
				require.ErrorContains(t, err, c.wrong)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.want.First.Sub(c.want.Last), got.Down())
			p.Forget()
			_, err = p.since("b")
			require.ErrorContains(t, err, "no outage")
		})
	}
}

// TestProber checks that a prober sees a server stop, answer with an error, and return with another answer, and that
// each request has its own connection.
func TestProber(t *testing.T) {
	t.Parallel()
	n := &Node{tb: t}
	answer, connections := make(chan string, 1), make(chan net.Conn, 1<<16)
	answer <- "old"
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text := <-answer
		answer <- text
		if text == "busy" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(text))
	}))
	server.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections <- c
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	p := n.Probe(int(netip.MustParseAddrPort(server.Listener.Addr().String()).Port()))
	for _, text := range []string{"busy", "new"} {
		for range 3 { // the second request is sent after the first is answered
			<-connections
		}
		<-answer
		answer <- text
	}
	o := p.Await("new", Patience)
	assert.Equal(t, "old", o.Before)
	p.Stop()
	p.Stop() // the test's cleanup calls it again
	assert.Equal(t, []Outage{o}, p.outages, "an error is no answer")
}

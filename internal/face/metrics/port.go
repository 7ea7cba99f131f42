// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of the port, which each process of the node can reach.
const (
	maxClients   = 8                // connections; more wait in the kernel's queue
	maxHeader    = 4 << 10          // bytes; a scrape has some hundred
	readTimeout  = 10 * time.Second // of the request; a scrape sends it at once
	writeTimeout = 30 * time.Second // of the answer: some 20 KB
	idleTimeout  = 5 * time.Minute  // Prometheus scrapes each minute or more often
)

// retryPort is the time between attempts to listen.
const retryPort = time.Minute

// Port serves metrics at a TCP address. If it cannot listen it logs an error and retries.
type Port struct {
	handler http.Handler
	log     *slog.Logger
	wanted  chan string
	listen  func(ctx context.Context, network, address string) (net.Listener, error)
}

// NewPort returns a port that serves only h, at GET /metrics.
func NewPort(h http.Handler, log *slog.Logger) *Port {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return &Port{
		handler: mux, log: log, wanted: make(chan string, 1), listen: (&net.ListenConfig{}).Listen,
	}
}

// Listen sets the address, host:port; empty: none. It must be a loopback address, because there is no authentication.
// Listen does not wait. Call it from one goroutine.
func (p *Port) Listen(address string) {
	select {
	case <-p.wanted: // replaces an address that Run has not read yet
	default:
	}
	p.wanted <- address
}

// Run serves until ctx ends.
func (p *Port) Run(ctx context.Context) {
	var open *serving // nil if not listening
	address, logged := "", ""
	tick := time.NewTimer(retryPort)
	tick.Stop()
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			open.close()
			return
		case next := <-p.wanted:
			if next == address {
				continue // connections survive a reload
			}
			open.close()
			open, address, logged = nil, next, ""
		case <-open.done():
			open.close()
			open = nil
			tick.Reset(retryPort)
			continue
		case <-tick.C:
		}
		tick.Stop()
		if address == "" || open != nil {
			continue
		}
		var err error
		if open, err = p.serve(ctx, address); err != nil {
			if err.Error() != logged { // logged once, not each minute
				logged = err.Error()
				p.log.Warn("cannot serve metrics at the port", "address", address, "err", err)
			}
			tick.Reset(retryPort)
			continue
		}
		p.log.Info("serving metrics", "address", address)
	}
}

// serve listens at an address.
func (p *Port) serve(ctx context.Context, address string) (*serving, error) {
	l, err := p.listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &serving{ended: make(chan struct{}), server: &http.Server{
		Handler: p.handler, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}}
	go func() {
		defer close(s.ended)
		if err := s.server.Serve(netutil.LimitListener(l, maxClients)); !errors.Is(err, http.ErrServerClosed) {
			p.log.Warn("metrics port closed", "address", address, "err", err)
		}
	}()
	return s, nil
}

// serving is a running server; nil is none.
type serving struct {
	server *http.Server
	ended  chan struct{}
}

func (s *serving) done() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.ended
}

// close ends all connections.
func (s *serving) close() {
	if s != nil {
		_ = s.server.Close() // the listener may have ended already
		<-s.ended
	}
}

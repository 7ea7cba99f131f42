// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/metrics"
	"github.com/kubic-project/image-update-agent/internal/registry"
)

// metricsOf serves the numbers of the wiring that is in force, which a reload
// replaces, and of the loop and what it counts, which stay.
func metricsOf(current *atomic.Pointer[wiring], loop *agent.Loop, counts *metrics.Counts) http.Handler {
	return metrics.Handler(metrics.Readings{
		Version:  version,
		Requests: func() map[string]uint64 { return current.Load().sent().Kinds() },
		Received: func() uint64 { return current.Load().sent().Received },
		Pace:     func() record.Pace { return current.Load().registry.Pace() },
		PerHour:  func() int { return current.Load().perHour },
		Status:   loop.Status,
		Holds:    status.HoldNames(),
		Now:      time.Now,
	}, counts)
}

// counting makes the counters of all wirings to come.
func (a *app) counting() *metrics.Counts {
	counts := metrics.NewCounts()
	a.meter = counts
	return counts
}

// serveMetrics serves numbers on the status socket, and makes the port for them.
func serveMetrics(socket *api.Server, numbers http.Handler, listen string, log *slog.Logger) *metrics.Port {
	socket.Metrics(numbers)
	port := metrics.NewPort(numbers, log)
	port.Listen(listen)
	return port
}

// taking puts a wiring in the place of the one that is in force.
func taking(current *atomic.Pointer[wiring], port *metrics.Port) func(*wiring) {
	return func(next *wiring) {
		last := current.Load()
		next.countOn(last)
		current.Store(next)
		port.Listen(next.listen)
		last.close()
	}
}

// countOn continues the counts of the wiring before.
func (w *wiring) countOn(last *wiring) { w.before = last.sent() }

// sent is what went over the wire since the start of the daemon.
func (w *wiring) sent() registry.Counts { return w.before.Plus(w.registry.Counts()) }

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/metrics"
)

// metricsOf serves the numbers of the wiring that is in force, which a reload
// replaces, and of the loop, which stays.
func metricsOf(current *atomic.Pointer[wiring], loop *agent.Loop) http.Handler {
	return metrics.Handler(metrics.Readings{
		Requests: func() map[string]uint64 { return current.Load().registry.Counts().Kinds() },
		Pace:     func() agent.Pace { return current.Load().registry.Pace() },
		PerHour:  func() int { return current.Load().perHour },
		Status:   loop.Status,
		Now:      time.Now,
	})
}

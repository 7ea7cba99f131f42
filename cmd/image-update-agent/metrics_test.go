// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/internal/face/metrics"
	"github.com/kubic-project/image-update-agent/internal/registry"
)

// What was sent before a reload was sent, and the port moves with it.
func TestAReloadLosesNoCount(t *testing.T) {
	t.Parallel()
	wire := func(before registry.Counts) *wiring {
		return &wiring{registry: registry.New(registry.Options{}), before: before}
	}
	port := metrics.NewPort(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); port.Run(ctx) }()
	var current atomic.Pointer[wiring]
	current.Store(wire(registry.Counts{Requests: 7, Tokens: 2, Pulls: 3, Connections: 4, Received: 5, Sent: 6}))
	take := taking(&current, port)
	for range 3 {
		take(wire(registry.Counts{}))
		assert.Equal(t, registry.Counts{Requests: 7, Tokens: 2, Pulls: 3, Connections: 4, Received: 5, Sent: 6}, current.Load().sent())
	}
	one := registry.Counts{Requests: 1, Tokens: 1, Pulls: 1, Connections: 1, Received: 1, Sent: 1}
	assert.Equal(t, registry.Counts{Requests: 2, Tokens: 2, Pulls: 2, Connections: 2, Received: 2, Sent: 2}, one.Plus(one))
	end()
	<-ended
	current.Load().close()
}

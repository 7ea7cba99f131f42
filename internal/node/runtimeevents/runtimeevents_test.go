// SPDX-License-Identifier: Apache-2.0

package runtimeevents

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a containerd that sends the test's events.
type server struct {
	eventsapi.UnimplementedEventsServer
	filters chan []string
	send    chan *types.Envelope
}

func (s *server) Subscribe(r *eventsapi.SubscribeRequest, to eventsapi.Events_SubscribeServer) error {
	s.filters <- r.GetFilters()
	for {
		select {
		case <-to.Context().Done():
			return nil
		case e := <-s.send:
			if err := to.Send(e); err != nil {
				return err
			}
		}
	}
}

// serve starts a containerd on a socket.
func serve(t *testing.T, socket string) (*server, *grpc.Server) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	s := &server{filters: make(chan []string, 1), send: make(chan *types.Envelope)}
	g := grpc.NewServer()
	eventsapi.RegisterEventsServer(g, s)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	return s, g
}

func envelope(t *testing.T, topic string, m proto.Message) *types.Envelope {
	t.Helper()
	data, err := proto.Marshal(m)
	require.NoError(t, err)
	return &types.Envelope{Namespace: "k8s.io", Topic: topic, Event: &anypb.Any{Value: data}}
}

// w returns the events from a containerd.
func w(t *testing.T, socket string) <-chan watch.RuntimeEvent {
	t.Helper()
	e, err := New(Options{Socket: socket, Namespace: "k8s.io", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan watch.RuntimeEvent, 16), make(chan struct{})
	go func() {
		defer close(ended)
		e.Watch(ctx, func(e watch.RuntimeEvent) { heard <- e })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return heard
}

func TestStartsAndEndsOfContainersAreReported(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "containerd.sock")
	s, _ := serve(t, socket)
	heard := w(t, socket)
	assert.Equal(t, []string{`namespace=="k8s.io",topic=="/tasks/start"`, `namespace=="k8s.io",topic=="/tasks/exit"`}, <-s.filters)
	assert.Zero(t, <-heard, "something may have been missed before")
	s.send <- envelope(t, topicStart, &events.TaskStart{ContainerID: "a", Pid: 7})
	assert.Equal(t, watch.RuntimeEvent{ContainerID: "a"}, <-heard)
	s.send <- envelope(t, topicExit, &events.TaskExit{ContainerID: "a", ID: "probe"}) // of an exec
	s.send <- envelope(t, "/tasks/oom", &events.TaskOOM{ContainerID: "a"})
	s.send <- &types.Envelope{Topic: topicExit, Event: &anypb.Any{Value: []byte("no message")}}
	s.send <- &types.Envelope{Topic: topicExit}
	s.send <- envelope(t, topicExit, &events.TaskExit{ContainerID: "a", ID: "a", ExitStatus: 137})
	assert.Equal(t, watch.RuntimeEvent{ContainerID: "a", Ended: true}, <-heard)
}

func TestContainerdConformsAsRuntimeEvents(t *testing.T) {
	t.Parallel()
	agenttest.TestRuntimeEvents(t, func(t *testing.T) agenttest.EventsUnderTest {
		t.Helper()
		socket := filepath.Join(t.TempDir(), "containerd.sock")
		s, g := serve(t, socket)
		e, err := New(Options{Socket: socket, Namespace: "k8s.io", Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		return agenttest.EventsUnderTest{
			Events: e,
			Start: func(t *testing.T, id string) {
				t.Helper()
				s.send <- envelope(t, topicStart, &events.TaskStart{ContainerID: id})
			},
			End: func(t *testing.T, id string) {
				t.Helper()
				s.send <- envelope(t, topicExit, &events.TaskExit{ContainerID: id, ID: id})
			},
			Other: func(t *testing.T, id string) {
				t.Helper()
				s.send <- envelope(t, topicExit, &events.TaskExit{ContainerID: id, ID: "probe"})
			},
			Restart: func(t *testing.T) {
				t.Helper()
				g.Stop()
				s, g = serve(t, socket)
			},
		}
	})
}

// An invalid event ends the subscription, and a new one starts.
func TestTooLargeEventIsNotRead(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "containerd.sock")
	s, _ := serve(t, socket)
	heard := w(t, socket)
	<-s.filters
	assert.Zero(t, <-heard)
	s.send <- envelope(t, topicStart, &events.TaskStart{ContainerID: strings.Repeat("x", maxMessage)})
	assert.Zero(t, <-heard, "something may have been missed")
	<-s.filters
	assert.Zero(t, <-heard, "another subscription")
}

// pauses receives each pause between two subscriptions.
type pauses struct {
	slog.Handler
	heard chan<- time.Duration
}

func (p pauses) Enabled(context.Context, slog.Level) bool { return true }

func (p pauses) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "again" {
			p.heard <- a.Value.Duration()
		}
		return true
	})
	return nil
}

// A node without containerd does not poll its socket all the time.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "containerd.sock")
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan time.Duration, 16)
		e, err := New(Options{Socket: socket, Namespace: "k8s.io", Log: slog.New(pauses{slog.DiscardHandler, heard})})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go e.Watch(ctx, func(watch.RuntimeEvent) {})
		for want := firstPause; want < longestPause; want *= 2 {
			assert.Equal(t, want, <-heard)
		}
		assert.Equal(t, longestPause, <-heard)
		assert.Equal(t, longestPause, <-heard)
	})
}

func TestSocketMustBeAbsolute(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Socket: "containerd.sock"})
	require.EqualError(t, err, `containerd "containerd.sock": not an absolute path`)
}

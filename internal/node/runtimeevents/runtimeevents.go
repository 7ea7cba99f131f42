// SPDX-License-Identifier: Apache-2.0

// Package runtimeevents implements watch.RuntimeEvents with the events service of containerd 1.6 and later.
//
// It reports starts and ends of containers' main processes, but not of processes that kubelet executes in containers,
// such as probes. A subscription is one stream of events; it ends with containerd, and a new one starts after a
// back-off. Before and after each subscription, events may be missed: an empty event reports that.
package runtimeevents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/kubic-project/image-update-agent/agent/watch"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
)

// The topics of containerd (core/runtime/events.go).
const (
	topicStart = "/tasks/start"
	topicExit  = "/tasks/exit"
)

const (
	// maxMessage limits an event, in bytes. Events of these topics have a few hundred bytes.
	maxMessage = 64 << 10
	// containerd restarts within a second.
	firstPause   = 250 * time.Millisecond
	longestPause = time.Minute
)

// Options configure Events.
type Options struct {
	Socket    string // absolute path
	Namespace string // of the containers: k8s.io
	Log       *slog.Logger
}

// Events are the events of the containerd behind one socket.
type Events struct{ Options }

var _ watch.RuntimeEvents = (*Events)(nil)

// New checks the options. It does not connect: containerd may start later.
func New(o Options) (*Events, error) {
	if !filepath.IsAbs(o.Socket) {
		return nil, fmt.Errorf("containerd %q: not an absolute path", o.Socket)
	}
	return &Events{o}, nil
}

// Watch reports events until ctx ends.
func (e *Events) Watch(ctx context.Context, onEvent func(watch.RuntimeEvent)) {
	pause := firstPause
	for {
		began := time.Now()
		connected, err := e.subscribe(ctx, onEvent)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > pause {
			pause = firstPause
		}
		if connected {
			onEvent(watch.RuntimeEvent{})
		}
		e.Log.Debug("no events from containerd", "socket", e.Socket, "err", err, "again", pause)
		_ = wait.For(ctx, pause)
		pause = min(2*pause, longestPause)
	}
}

// subscribe reports one stream of events until it ends.
func (e *Events) subscribe(ctx context.Context, onEvent func(watch.RuntimeEvent)) (connected bool, err error) {
	conn, err := grpc.NewClient("passthrough:containerd",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", e.Socket)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	stream, err := eventsapi.NewEventsClient(conn).Subscribe(ctx, &eventsapi.SubscribeRequest{Filters: []string{
		e.filter(topicStart), e.filter(topicExit),
	}})
	if err != nil {
		return false, err
	}
	// containerd sends no header before the first event, so nothing confirms the
	// subscription. The empty event causes an observation a moment later.
	onEvent(watch.RuntimeEvent{})
	for {
		envelope, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return true, err
		}
		if event, ok := read(envelope.GetTopic(), envelope.GetEvent().GetValue()); ok {
			onEvent(event)
		}
	}
}

func (e *Events) filter(topic string) string {
	return fmt.Sprintf("namespace==%q,topic==%q", e.Namespace, topic)
}

// read decodes an event; false if it is not about a container's main process.
func read(topic string, data []byte) (watch.RuntimeEvent, bool) {
	switch topic {
	case topicStart:
		var start events.TaskStart
		err := proto.Unmarshal(data, &start)
		return watch.RuntimeEvent{ContainerID: start.GetContainerID()}, err == nil && start.GetContainerID() != ""
	case topicExit:
		var exit events.TaskExit
		err := proto.Unmarshal(data, &exit)
		// Another id belongs to a process that was executed in the container.
		own := exit.GetID() == exit.GetContainerID() || exit.GetID() == ""
		return watch.RuntimeEvent{ContainerID: exit.GetContainerID(), Ended: true},
			err == nil && own && exit.GetContainerID() != ""
	default:
		return watch.RuntimeEvent{}, false
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package runtimeevents hears from containerd when containers start and end: it
// is watch.RuntimeEvents over containerd's events service, which containerd 1.6
// and later have.
//
// # Words
//
// A subscription is one stream of events. It ends with containerd, and another
// one is made, after a back-off.
//
// # Promises
//
// Only starts and ends of containers' own processes are passed on; of what kubelet
// runs inside of containers, as probes, nothing is. Whoever watches is told when
// events may have been missed: before and after each subscription. Nobody polls.
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
)

// The topics of containerd (core/runtime/events.go).
const (
	topicStart = "/tasks/start"
	topicExit  = "/tasks/exit"
)

const (
	// maxMessage is far above an event of these topics, which has a few hundred bytes.
	maxMessage = 64 << 10
	// A containerd that is restarted is back within a second. The longest pause is
	// that of the loop's own observations of a node without containerd, or shorter.
	firstPause   = 250 * time.Millisecond
	longestPause = time.Minute
)

// Options say where containerd is.
type Options struct {
	Socket    string // absolute path
	Namespace string // of the containers: k8s.io
	Log       *slog.Logger
}

// Events is containerd behind one socket. It holds nothing.
type Events struct{ Options }

var _ watch.RuntimeEvents = (*Events)(nil)

// New checks the options. It does not connect: containerd may start later.
func New(o Options) (*Events, error) {
	if !filepath.IsAbs(o.Socket) {
		return nil, fmt.Errorf("containerd %q: not an absolute path", o.Socket)
	}
	return &Events{o}, nil
}

// Watch passes on what happens until ctx ends.
func (e *Events) Watch(ctx context.Context, hear func(watch.RuntimeEvent)) {
	pause := firstPause
	for {
		began := time.Now()
		stood, err := e.subscribe(ctx, hear)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > pause {
			pause = firstPause
		}
		if stood {
			hear(watch.RuntimeEvent{}) // containerd may be gone
		}
		e.Log.Debug("no events from containerd", "socket", e.Socket, "err", err, "again", pause)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		pause = min(2*pause, longestPause)
	}
}

// subscribe hears one stream of events to its end; stood: there was a containerd.
func (e *Events) subscribe(ctx context.Context, hear func(watch.RuntimeEvent)) (stood bool, err error) {
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
	// containerd sends no header before the first event, so nothing tells that the
	// subscription stands. What happened before it did is seen by an observation a
	// moment after it was asked for.
	hear(watch.RuntimeEvent{})
	for {
		envelope, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return true, err
		}
		if event, ok := read(envelope.GetTopic(), envelope.GetEvent().GetValue()); ok {
			hear(event)
		}
	}
}

func (e *Events) filter(topic string) string {
	return fmt.Sprintf("namespace==%q,topic==%q", e.Namespace, topic)
}

// read takes an event apart; false: it is none of a container's own process.
func read(topic string, data []byte) (watch.RuntimeEvent, bool) {
	switch topic {
	case topicStart:
		var start events.TaskStart
		err := proto.Unmarshal(data, &start)
		return watch.RuntimeEvent{ContainerID: start.GetContainerID()}, err == nil && start.GetContainerID() != ""
	case topicExit:
		var exit events.TaskExit
		err := proto.Unmarshal(data, &exit)
		// Another id is that of a process that was executed in the container.
		own := exit.GetID() == exit.GetContainerID() || exit.GetID() == ""
		return watch.RuntimeEvent{ContainerID: exit.GetContainerID(), Ended: true},
			err == nil && own && exit.GetContainerID() != ""
	default:
		return watch.RuntimeEvent{}, false
	}
}

// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

const (
	// DefaultPull limits a pull: 200 MB over 2 Mbit/s.
	DefaultPull = 15 * time.Minute

	// callTimeout is half of kubelet's.
	callTimeout = time.Minute
	// stopMargin is for the kill and the unmounts after the grace period.
	stopMargin = 30 * time.Second
	// execMargin is for the kill after the timeout.
	execMargin = 10 * time.Second
	// maxMessage is kubelet's limit for a CRI answer.
	maxMessage = 16 << 20
)

// Options configure a Runtime.
type Options struct {
	// Socket is the absolute path of the CRI socket.
	Socket string
	// Pull limits Pull; zero means DefaultPull.
	Pull time.Duration
}

// Runtime is the container runtime behind one socket. It is safe for concurrent use.
type Runtime struct {
	socket string
	pull   time.Duration

	mu      sync.Mutex
	started map[string]int64 // start of each running container of the last list, by its id
}

var _ node.Pods = (*Runtime)(nil)

// New checks the options. It does not connect: the runtime may start later.
func New(o Options) (*Runtime, error) {
	if !filepath.IsAbs(o.Socket) {
		return nil, fmt.Errorf("cri %q: not an absolute path", o.Socket)
	}
	if o.Pull < 0 {
		return nil, fmt.Errorf("cri %s: negative time", o.Socket)
	}
	if o.Pull == 0 {
		o.Pull = DefaultPull
	}
	return &Runtime{socket: o.Socket, pull: o.Pull}, nil
}

// session is one call's connection.
type session struct {
	cri.RuntimeServiceClient
	cri.ImageServiceClient
}

// with runs a call on a new session, within limit.
func (r *Runtime) with(ctx context.Context, limit time.Duration, call func(context.Context, session) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := r.connected(ctx, call)
	if err != nil {
		return outside.Error(fmt.Errorf("cri %s: %w", r.socket, err)) // it may quote a registry
	}
	return nil
}

func (r *Runtime) connected(ctx context.Context, call func(context.Context, session) error) error {
	// The extra dial returns the kernel's error, which gRPC would wrap three times.
	probe, err := r.dial(ctx, "")
	if err != nil {
		return err
	}
	if err := probe.Close(); err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:cri",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(r.dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return err
	}
	err = call(ctx, session{cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)})
	return errors.Join(err, conn.Close())
}

func (r *Runtime) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", r.socket)
	if at, ok := errors.AsType[*net.OpError](err); ok {
		return nil, at.Err // with adds the path
	}
	return conn, err
}

// isNotFound reports whether the runtime does not know the object.
func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// readable converts a gRPC error to the runtime's own text, with the standard errors that callers check.
func readable(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch s.Code() {
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w: %s", context.DeadlineExceeded, s.Message())
	case codes.Canceled:
		return fmt.Errorf("%w: %s", context.Canceled, s.Message())
	case codes.NotFound:
		return fmt.Errorf("%w: %s", release.ErrNotFound, s.Message())
	case codes.Unknown:
		return errors.New(s.Message())
	}
	return fmt.Errorf("%s: %s", s.Code(), s.Message())
}

// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

const (
	// DefaultPull bounds a pull that nobody watches: 200 MB over 2 Mbit/s.
	DefaultPull = 15 * time.Minute

	// callTimeout is for questions; kubelet gives them 2 minutes, and a node
	// that needs half of one is not fit for an update.
	callTimeout = time.Minute
	// stopMargin is what a stop may take beyond the grace, for the kill and the
	// unmounts.
	stopMargin = 30 * time.Second
	// maxMessage is kubelet's limit for a CRI answer.
	maxMessage = 16 << 20
)

// Options says where the runtime is and how patient to be.
type Options struct {
	// Socket is the absolute path of the CRI socket.
	Socket string
	// Pull bounds Pull; zero means DefaultPull.
	Pull time.Duration
}

// Runtime is the container runtime behind one socket. It holds nothing and may
// be used by several goroutines at once.
type Runtime struct {
	socket string
	pull   time.Duration
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

// with runs one call: connected, bounded in time, its error placed.
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
	// The first connection is only a question: its error is the kernel's own
	// word, where gRPC would wrap it three times.
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
		return nil, at.Err // the path is in our own prefix already
	}
	return conn, err
}

// gone reports whether the runtime does not know what it was asked about.
func gone(err error) bool { return status.Code(err) == codes.NotFound }

// said makes a gRPC error readable: the runtime's own words, and the standard
// errors where a caller may look for them.
func said(err error) error {
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

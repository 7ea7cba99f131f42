// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content/proxy"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/platforms"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// errGone: containerd has ended the connection.
var errGone = errors.New("connection lost")

// session is one call's connection to containerd.
type session struct {
	*Store
	client  *containerd.Client
	matcher platforms.MatchComparer
	link    *link

	snap struct {
		sync.Mutex
		name string // of the snapshotter, once it is known
	}
}

// open connects. The first connection is only a question: its error is the
// kernel's own word (no such file, connection refused), where gRPC would wrap
// it three times.
func (s *Store) open(ctx context.Context) (*session, error) {
	probe, err := s.dial(ctx, "")
	if err != nil {
		return nil, err
	}
	if err := probe.Close(); err != nil {
		return nil, err
	}
	l := &link{gone: make(chan struct{})}
	matcher := platforms.Only(s.platform)
	store := new(documents)
	client, err := containerd.New(s.socket,
		containerd.WithDefaultNamespace(s.namespace),
		containerd.WithDefaultPlatform(matcher),
		containerd.WithServices(containerd.WithContentStore(store)),
		containerd.WithDialOpts([]grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			// containerd's own dialer waits 10 s for a socket that is not there.
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return l.dial(ctx, address, s.dial)
			}),
		}))
	if err != nil {
		return nil, err
	}
	store.Store = proxy.NewContentStore(client.Conn())
	return &session{Store: s, client: client, matcher: matcher, link: l}, nil
}

// with runs one short call: connected, bounded in time, its error placed.
func (s *Store) with(ctx context.Context, call func(context.Context, *session) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := s.open(ctx)
	if err != nil {
		return s.placed(err)
	}
	defer c.close()
	return s.placed(call(ctx, c))
}

func (s *Store) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.socket)
	if at, ok := errors.AsType[*net.OpError](err); ok {
		return nil, at.Err // the path is in our own prefix already
	}
	return conn, err
}

func (c *session) close() {
	if err := c.client.Close(); err != nil {
		c.log.Debug("containerd: close", "error", err)
	}
}

// placed names the socket in an error: a node may have more than one.
func (s *Store) placed(err error) error {
	if err == nil {
		return nil
	}
	return outside.Error(fmt.Errorf("containerd %s: %w", s.socket, err)) // it may quote a registry
}

// link is a session's connection to containerd. gRPC would connect anew by
// itself, to a containerd that knows nothing of our open transfers, and some
// calls of containerd's client wait for that without end. So there is one
// connection, and whoever must know hears of its end.
type link struct {
	once sync.Once
	gone chan struct{} // closed with the connection
}

func (l *link) cut() { l.once.Do(func() { close(l.gone) }) }

func (l *link) isGone() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

func (l *link) dial(
	ctx context.Context, address string, dial func(context.Context, string) (net.Conn, error),
) (net.Conn, error) {
	if l.isGone() {
		return nil, errGone
	}
	conn, err := dial(ctx, address)
	if err != nil {
		l.cut()
		return nil, err
	}
	return linkConn{conn, l}, nil
}

// while is ctx until the connection ends.
func (l *link) while(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-l.gone:
			cancel(errGone)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// linkConn notices the end before gRPC tells anybody.
type linkConn struct {
	net.Conn
	link *link
}

func (c linkConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.link.cut()
	}
	return n, err
}

func (c linkConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.link.cut()
	}
	return n, err
}

// snapshotterName is the caller's choice, else the namespace's default, else
// containerd's.
func (c *session) snapshotterName(ctx context.Context) (string, error) {
	c.snap.Lock()
	defer c.snap.Unlock()
	if c.snap.name != "" {
		return c.snap.name, nil
	}
	name, err := c.chooseSnapshotter(ctx)
	if err != nil {
		return "", fmt.Errorf("snapshotter: %w", err)
	}
	c.snap.name = name
	return name, nil
}

func (c *session) chooseSnapshotter(ctx context.Context) (string, error) {
	if c.snapshotter != nil {
		name, err := c.snapshotter(ctx)
		if err == nil && name == "" {
			err = errors.New("has no name")
		}
		return name, err
	}
	name, err := c.client.GetLabel(ctx, defaults.DefaultSnapshotterNSLabel)
	if err == nil && name == "" {
		name = defaults.DefaultSnapshotter
	}
	return name, err
}

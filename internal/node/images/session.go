// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content/proxy"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

var errConnectionLost = errors.New("connection lost")

// session is one call's connection to containerd.
type session struct {
	*Store
	client  *containerd.Client
	matcher platforms.MatchComparer
	link    *link
	snap    string // CRI's snapshotter; "" if not asked yet. A pull asks before it has goroutines
}

// open connects. It first dials the socket without gRPC, for the kernel's own error (no such file, connection refused),
// which gRPC would wrap three times.
func (s *Store) open(ctx context.Context) (*session, error) {
	probe, err := s.dial(ctx, "")
	if err != nil {
		return nil, err
	}
	if err := probe.Close(); err != nil {
		return nil, err
	}
	l := newLink()
	matcher := platforms.Only(s.platform)
	store := new(documents)
	client, err := containerd.New(s.socket,
		containerd.WithDefaultNamespace(s.namespace),
		containerd.WithDefaultPlatform(matcher),
		containerd.WithServices(containerd.WithContentStore(store)),
		containerd.WithDialOpts([]grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			// containerd's dialer waits 10 s for a socket that does not exist.
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

// with runs a short call on a new session.
func (s *Store) with(ctx context.Context, call func(context.Context, *session) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := s.open(ctx)
	if err != nil {
		return s.wrapError(err)
	}
	defer c.close()
	return s.wrapError(call(ctx, c))
}

func (s *Store) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.socket)
	if at, ok := errors.AsType[*net.OpError](err); ok {
		return nil, at.Err // wrapError adds the path
	}
	return conn, err
}

func (c *session) close() {
	if err := c.client.Close(); err != nil {
		c.log.Debug("containerd: close", "error", err)
	}
}

// wrapError adds the socket, because a node may have more than one.
func (s *Store) wrapError(err error) error {
	if err == nil {
		return nil
	}
	return outside.Error(fmt.Errorf("containerd %s: %w", s.socket, err)) // it may quote a registry
}

// link is the only connection of a session. gRPC would reconnect to a restarted containerd, which does not know the
// open transfers, and some calls of containerd's client would wait for those forever.
type link struct {
	context.Context //nolint:containedctx // it ends with the connection
	cut             context.CancelFunc
}

func newLink() *link {
	l := &link{}
	l.Context, l.cut = context.WithCancel(context.Background())
	return l
}

func (l *link) isLost() bool { return l.Err() != nil }

func (l *link) dial(
	ctx context.Context, address string, dial func(context.Context, string) (net.Conn, error),
) (net.Conn, error) {
	if l.isLost() {
		return nil, errConnectionLost
	}
	conn, err := dial(ctx, address)
	if err != nil {
		l.cut()
		return nil, err
	}
	return linkConn{conn, l}, nil
}

// bind returns a context that also ends with the connection.
func (l *link) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l, func() { cancel(errConnectionLost) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// linkConn cuts the link at the first error.
type linkConn struct {
	net.Conn
	link *link
}

func (c linkConn) Read(p []byte) (int, error) { return c.cutOn(c.Conn.Read(p)) }

func (c linkConn) Write(p []byte) (int, error) { return c.cutOn(c.Conn.Write(p)) }

func (c linkConn) cutOn(n int, err error) (int, error) {
	if err != nil {
		c.link.cut()
	}
	return n, err
}

// snapshotterName returns the caller's choice, else the namespace's default, else containerd's.
func (c *session) snapshotterName(ctx context.Context) (string, error) {
	if c.snap != "" {
		return c.snap, nil
	}
	name, err := c.chooseSnapshotter(ctx)
	if err != nil {
		return "", fmt.Errorf("snapshotter: %w", err)
	}
	c.snap = name
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

// fullDisk are the kernel's texts for a full disk or quota: containerd's API passes on only the text of an errno.
var fullDisk = []string{syscall.ENOSPC.Error(), syscall.EDQUOT.Error()}

// registryError is an error on the registry's side, including a full disk there.
type registryError struct{ error }

func (e *registryError) Error() string { return "registry: " + e.error.Error() }

func (e *registryError) Unwrap() error { return e.error }

// withKind wraps the error of a pull with release.ErrNoSpace if the node's disk is full.
func withKind(err error) error {
	if err == nil || errors.Is(err, release.ErrNoSpace) {
		return err
	}
	if _, ok := errors.AsType[*registryError](err); ok {
		return err
	}
	text := err.Error()
	if slices.ContainsFunc(fullDisk, func(cause string) bool { return strings.Contains(text, cause) }) {
		return fmt.Errorf("%w: %w", release.ErrNoSpace, err)
	}
	return err
}

// isResumable reports whether the next attempt can use the partial pull: not after wrong bytes (containerd: failed
// precondition), with which every attempt would start.
func isResumable(err error) bool {
	return !errors.Is(err, release.ErrNoSpace) && !errors.Is(err, release.ErrPlatform) &&
		!errors.Is(err, release.ErrNotFound) && !errdefs.IsFailedPrecondition(err)
}

// isTransient reports whether another attempt may succeed: containerd was restarted, or fails on the remains of a kill.
// Its overlayfs snapshotter renames a directory before it commits the record; the next snapshot with that number fails
// on the directory and removes it.
func isTransient(err error) bool {
	if errors.Is(err, errConnectionLost) {
		return true
	}
	_, registry := errors.AsType[*registryError](err)
	return err != nil && !registry && strings.Contains(err.Error(), syscall.EEXIST.Error())
}

// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kubic-project/image-update-agent/agent"
)

// DefaultNamespace is where CRI keeps its images.
const DefaultNamespace = "k8s.io"

// callTimeout bounds Held and Pins: a containerd that takes a connection and
// then says nothing must not stop the agent's loop. Listing 1,000 records
// takes well under a second.
const callTimeout = time.Minute

// Options says where containerd is and how it is used.
type Options struct {
	// Socket is the absolute path of containerd's socket.
	Socket string
	// Namespace is containerd's; empty means DefaultNamespace.
	Namespace string
	// Snapshotter must be the one that CRI uses, or what is unpacked here is
	// unpacked again at the container's start. Empty means containerd's
	// default: the namespace's label containerd.io/defaults/snapshotter, else
	// overlayfs.
	Snapshotter string
	// Resolver reaches the registries, through the hosts that kubelet's pulls use.
	Resolver remotes.Resolver
	// Platform is the node's; the zero value is the platform we run on.
	Platform ocispec.Platform
	// Logger may be nil.
	Logger *slog.Logger
}

// Store is the image store of one containerd namespace. It may be used by
// several goroutines at once.
type Store struct {
	socket      string
	namespace   string
	snapshotter string
	resolver    remotes.Resolver
	platform    ocispec.Platform
	log         *slog.Logger
	slots       chan struct{} // one for each layer that is being fetched

	mu      sync.Mutex
	staging map[string]bool // by repository@digest
	known   map[digest.Digest]parts
}

var _ agent.Images = (*Store)(nil)

// New checks the options. It does not connect: containerd may start later.
func New(o Options) (*Store, error) {
	if !filepath.IsAbs(o.Socket) {
		// gRPC takes a relative path for an authority and answers with a riddle.
		return nil, fmt.Errorf("containerd %q: not an absolute path", o.Socket)
	}
	if o.Resolver == nil {
		return nil, errors.New("containerd: no resolver")
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Platform.OS == "" {
		o.Platform = platforms.DefaultSpec()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Store{
		socket:      o.Socket,
		namespace:   o.Namespace,
		snapshotter: o.Snapshotter,
		resolver:    o.Resolver,
		platform:    platforms.Normalize(o.Platform),
		log:         o.Logger,
		slots:       make(chan struct{}, downloads),
		staging:     map[string]bool{},
		known:       map[digest.Digest]parts{},
	}, nil
}

// session is one call's connection to containerd.
type session struct {
	*Store
	client  *containerd.Client
	matcher platforms.MatchComparer
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
	matcher := platforms.Only(s.platform)
	client, err := containerd.New(s.socket,
		containerd.WithDefaultNamespace(s.namespace),
		containerd.WithDefaultPlatform(matcher),
		containerd.WithDialOpts([]grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			// containerd's own dialer waits 10 s for a socket that is not there.
			grpc.WithContextDialer(s.dial),
		}))
	if err != nil {
		return nil, err
	}
	return &session{Store: s, client: client, matcher: matcher}, nil
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
	return fmt.Errorf("containerd %s: %w", s.socket, err)
}

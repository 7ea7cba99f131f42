// SPDX-License-Identifier: Apache-2.0

// Package images manages the node's images: it implements node.Images with containerd's own API, for servers 1.6 to
// 2.x.
//
// # Words
//
// A record is what containerd calls an image: a name, the digest it points to and labels, in a namespace; CRI uses the
// namespace k8s.io. The content store holds blobs by digest, the snapshotter their unpacked form; both drop everything
// that no record and no lease refers to. A pin is a record of the agent that protects an image from kubelet's garbage
// collector (containerd 1.7 and later) by its label. The label cannot be on the tag's own record, because a CRI pull
// wipes it there.
//
// # Promises
//
//   - Staging writes two records: the long tag (or the digest), and last the pin. A
//     complete pin means that the image is unpacked for this node's platform.
//   - Staging never writes the floating tag: that would let an unapproved image start.
//   - Naming writes one record, repository@digest, so that CRI finds the image
//     without a registry.
//   - A failed pull writes no record, and an image that is not complete after it keeps no new one. Another error may
//     leave a record of a complete image, as a kill does: the next staging uses it, and Pins and Prune remove what is
//     not wanted.
//   - Records of others are never written or removed, except for a tag's record that is not an
//     image (Restore).
//   - The agent's lease keeps a partial pull for the next attempt, for a day at most, if it can
//     be resumed; after a full disk it is removed before Stage returns.
//   - Staging survives a restart of containerd.
//   - Concurrent pulls share slots, bandwidth and layers: each blob is fetched once and
//     each layer unpacked once.
//   - Every call opens its own connection, so that an idle agent holds none.
//
// Why a failed pull keeps its lease: on a thin line a layer takes an hour, and an ended connection, a stopped agent or
// an update of containerd must not cost what has arrived. Each layer must bring staging.leastSpeed over a minute of
// waiting, so that one byte in 30 seconds does not hold a slot.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/base/keylock"
)

// DefaultNamespace is where CRI keeps its images.
const DefaultNamespace = "k8s.io"

// callTimeout limits every short call: a containerd that accepts connections and does not answer must not stop the
// agent's loop. Listing 1,000 records takes well under a second.
const callTimeout = time.Minute

// Defaults of Options.
const (
	downloads    = 3
	stageTimeout = time.Hour
)

// How many layers of all images containerd unpacks at once: one per processor. On a single processor, a second layer is
// ready while the first one waits for the network; more than four only fill containerd's memory.
const (
	minUnpacks = 2
	maxUnpacks = 4
)

// Options configure a Store.
type Options struct {
	// Socket is the absolute path of containerd's socket.
	Socket string
	// Namespace is containerd's; empty means DefaultNamespace.
	Namespace string
	// Snapshotter returns CRI's snapshotter; with another one, containers would unpack their image again. A session
	// calls it once. nil means containerd's default: the namespace's label containerd.io/defaults/snapshotter, else
	// overlayfs.
	Snapshotter func(ctx context.Context) (string, error)
	// Source fetches releases through the hosts that kubelet's pulls use.
	Source Source
	// Layers is how many layers of all images are fetched at once; 0 means 3, CRI's
	// default for one image (max_concurrent_downloads). More was not faster.
	Layers int
	// Bandwidth limits all pulls together, in bytes a second; 0 means no limit.
	Bandwidth int64
	// Timeout is how long staging one release may take; 0 means an hour.
	Timeout time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// Store is the image store of one containerd namespace. It is safe for concurrent use.
type Store struct {
	socket      string
	namespace   string
	snapshotter func(context.Context) (string, error)
	source      Source
	platform    ocispec.Platform
	log         *slog.Logger
	timeout     time.Duration

	reconnectTimeout time.Duration

	// All pulls share these.
	slots    chan struct{} // one per layer being fetched
	throttle *throttle
	// locks are for containerd's unpacker: of concurrent pulls with the same layer, the
	// first one fetches and unpacks it. Without them a second pull polls the layer's lock
	// every two seconds, and unpacks it again.
	locks   *keylock.Locks
	unpacks *semaphore.Weighted

	mu         sync.Mutex
	staging    map[string]bool // by repository@digest
	partsCache map[digest.Digest]parts
}

var _ node.Images = (*Store)(nil)

// New checks the options. It does not connect: containerd may start later.
func New(o Options) (*Store, error) {
	if !filepath.IsAbs(o.Socket) {
		// gRPC parses a relative path as an authority.
		return nil, fmt.Errorf("containerd %q: not an absolute path", o.Socket)
	}
	if o.Source == nil {
		return nil, errors.New("containerd: no source")
	}
	return &Store{
		socket:      o.Socket,
		namespace:   cmp.Or(o.Namespace, DefaultNamespace),
		snapshotter: o.Snapshotter,
		source:      o.Source,
		platform:    platforms.Normalize(platforms.DefaultSpec()),
		log:         cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		timeout:     cmp.Or(o.Timeout, stageTimeout),
		slots:       make(chan struct{}, cmp.Or(o.Layers, downloads)),
		throttle:    newThrottle(o.Bandwidth),
		locks:       keylock.New(1),
		unpacks:     semaphore.NewWeighted(int64(min(max(runtime.NumCPU(), minUnpacks), maxUnpacks))),
		staging:     map[string]bool{},
		partsCache:  map[digest.Digest]parts{},

		reconnectTimeout: reconnectTimeout,
	}, nil
}

// Server describes a containerd.
type Server struct {
	Version string // "v2.4.2", "1.6.20~ds1"
	// Snapshotters are the loaded ones, by name, with their capabilities: "rebase" (2.2
	// and later) accepts the layers of an image in any order.
	Snapshotters map[string][]string
	// ConfigPath is the config_path that CRI uses; empty: containerd before 2.4 does not report it.
	ConfigPath string
}

// AskServer asks the containerd behind a socket for its version and snapshotters.
func AskServer(ctx context.Context, socket, namespace string) (server Server, err error) {
	err = ask(ctx, socket, namespace, func(ctx context.Context, c *session) error {
		server, err = c.introspect(ctx)
		return err
	})
	return server, err
}

// ask runs a short call on the containerd behind a socket.
func ask(ctx context.Context, socket, namespace string, call func(context.Context, *session) error) error {
	store, err := New(Options{Socket: socket, Namespace: namespace, Source: struct{ Source }{}})
	if err != nil {
		return err
	}
	return store.with(ctx, call)
}

func (c *session) introspect(ctx context.Context) (Server, error) {
	version, err := c.client.Version(ctx)
	if err != nil {
		return Server{}, fmt.Errorf("version: %w", err)
	}
	answer, err := c.client.IntrospectionService().Plugins(ctx,
		"type=="+plugins.SnapshotPlugin.String(), "type=="+plugins.CRIServicePlugin.String()+",id==images")
	if err != nil {
		return Server{}, fmt.Errorf("plugins: %w", err)
	}
	server := Server{Version: version.Version, Snapshotters: map[string][]string{}}
	for _, p := range answer.GetPlugins() {
		switch {
		case p.GetInitErr() != nil: // it is not loaded
		case p.GetType() == plugins.CRIServicePlugin.String():
			server.ConfigPath = p.GetExports()["RegistryConfigPath"]
		default:
			server.Snapshotters[p.GetID()] = p.GetCapabilities()
		}
	}
	return server, nil
}

// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/keylock"
)

// DefaultNamespace is where CRI keeps its images.
const DefaultNamespace = "k8s.io"

// callTimeout bounds every short call: a containerd that takes a connection and
// then says nothing must not stop the agent's loop. Listing 1,000 records
// takes well under a second.
const callTimeout = time.Minute

// Defaults of Options.
const (
	downloads    = 3
	stageTimeout = time.Hour
)

// How many layers containerd unpacks for us at once, of all images together: one
// for each processor. On one processor the second has its layer ready while the
// first waits for the network; more than four only fill containerd's memory.
const (
	minUnpacks = 2
	maxUnpacks = 4
)

// Options says where containerd is and how it is used.
type Options struct {
	// Socket is the absolute path of containerd's socket.
	Socket string
	// Namespace is containerd's; empty means DefaultNamespace.
	Namespace string
	// Snapshotter tells the one that CRI uses; with another, what is unpacked here
	// is unpacked again at the container's start. It is asked once in a call that
	// needs it. nil means containerd's default: the namespace's label
	// containerd.io/defaults/snapshotter, else overlayfs.
	Snapshotter func(ctx context.Context) (string, error)
	// Source brings what is staged, through the hosts that kubelet's pulls use.
	Source Source
	// Layers is how many layers are fetched at once, of all images together; 0: 3,
	// which is CRI's default for one image (max_concurrent_downloads). More has not
	// been faster, and a pull must leave the node's services their share.
	Layers int
	// Bandwidth is how many bytes a second all pulls may fetch together; 0: as
	// many as come.
	Bandwidth int64
	// Timeout is how long staging one release may take; 0: an hour.
	Timeout time.Duration
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
	snapshotter func(context.Context) (string, error)
	source      Source
	platform    ocispec.Platform
	log         *slog.Logger
	timeout     time.Duration
	patience    time.Duration // with a containerd that restarts

	// What all pulls share.
	slots    chan struct{} // one for each layer that is being fetched
	throttle *throttle
	// locks are for containerd's unpacker: of the pulls that want one layer at the same
	// time the first fetches and unpacks it, and the others find it done. Without them
	// a second pull asks for the layer's lock every two seconds, and unpacks it again.
	locks   *keylock.Locks
	unpacks *semaphore.Weighted

	mu      sync.Mutex
	staging map[string]bool // by repository@digest
	known   map[digest.Digest]parts
}

var _ node.Images = (*Store)(nil)

// New checks the options. It does not connect: containerd may start later.
func New(o Options) (*Store, error) {
	if !filepath.IsAbs(o.Socket) {
		// gRPC takes a relative path for an authority and answers with a riddle.
		return nil, fmt.Errorf("containerd %q: not an absolute path", o.Socket)
	}
	if o.Source == nil {
		return nil, errors.New("containerd: no source")
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Platform.OS == "" {
		o.Platform = platforms.DefaultSpec()
	}
	if o.Layers == 0 {
		o.Layers = downloads
	}
	if o.Timeout == 0 {
		o.Timeout = stageTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Store{
		socket:      o.Socket,
		namespace:   o.Namespace,
		snapshotter: o.Snapshotter,
		source:      o.Source,
		platform:    platforms.Normalize(o.Platform),
		log:         o.Logger,
		timeout:     o.Timeout,
		patience:    patience,
		slots:       make(chan struct{}, o.Layers),
		throttle:    newThrottle(o.Bandwidth),
		locks:       keylock.New(1),
		unpacks:     semaphore.NewWeighted(int64(min(max(runtime.NumCPU(), minUnpacks), maxUnpacks))),
		staging:     map[string]bool{},
		known:       map[digest.Digest]parts{},
	}, nil
}

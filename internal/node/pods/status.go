// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/policy"
)

// CachedSnapshotter returns a function that returns Snapshotter's result. It asks CRI again only after a restart of
// containerd, because each observation of the node needs the answer.
func (r *Runtime) CachedSnapshotter() func(context.Context) (string, error) {
	return UntilRestart(r.socket, r.Snapshotter)
}

// UntilRestart returns a function that returns the last answer of containerd until it restarts, which creates a new
// socket. An error is not kept.
func UntilRestart[T any](socket string, ask func(context.Context) (T, error)) func(context.Context) (T, error) {
	return (&answer[T]{socket: socket, ask: ask}).get
}

type answer[T any] struct {
	socket string
	ask    func(context.Context) (T, error)

	mu    sync.Mutex
	from  os.FileInfo // the socket that answered
	value T
}

func (c *answer[T]) get(ctx context.Context) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := os.Stat(c.socket)
	if err == nil && c.from != nil && os.SameFile(c.from, now) && c.from.ModTime().Equal(now.ModTime()) {
		return c.value, nil
	}
	value, err := c.ask(ctx)
	if err != nil {
		return value, err
	}
	c.from, c.value = now, value
	return value, nil
}

// ConfigPath returns the config_path of the running containerd, from its verbose status. known is false if the status
// does not have it: containerd 2.x has it elsewhere.
func (r *Runtime) ConfigPath(ctx context.Context) (path string, known bool, err error) {
	err = r.with(ctx, callTimeout, func(ctx context.Context, c session) error {
		answer, err := c.Status(ctx, &cri.StatusRequest{Verbose: true})
		if err != nil {
			return fmt.Errorf("status: %w", readable(err))
		}
		var config struct {
			Registry *struct {
				ConfigPath *string `json:"configPath"`
			} `json:"registry"`
		}
		if text := answer.GetInfo()["config"]; text != "" {
			if err := json.Unmarshal([]byte(text), &config); err != nil {
				return fmt.Errorf("status: not a configuration in JSON: %w", err)
			}
		}
		if config.Registry != nil && config.Registry.ConfigPath != nil {
			path, known = *config.Registry.ConfigPath, true
		}
		return nil
	})
	return path, known, err
}

// snapshotterPrefix is containerd's prefix for the directory of a snapshotter (plugin type and id;
// internal/cri/config.getImageFSPath).
const snapshotterPrefix = "io.containerd.snapshotter.v1."

// Filesystem returns path, size and free space of the runtime's image filesystem. Free is what kubelet calls available:
// without the blocks reserved for root.
func (r *Runtime) Filesystem(ctx context.Context) (policy.Filesystem, error) {
	path, err := r.imagePath(ctx)
	if err != nil {
		return policy.Filesystem{}, err
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return policy.Filesystem{}, fmt.Errorf("cri %s: image filesystem %s: %w", r.socket, path, err)
	}
	block := uint64(stat.Frsize)
	return policy.Filesystem{Path: path, Size: int64(stat.Blocks * block), Free: int64(stat.Bavail * block)}, nil
}

// Snapshotter returns the name of the runtime's snapshotter, from its directory. It returns an error for another path:
// with a wrong snapshotter, all images would be unpacked twice.
func (r *Runtime) Snapshotter(ctx context.Context) (string, error) {
	path, err := r.imagePath(ctx)
	if err != nil {
		return "", err
	}
	name, ok := strings.CutPrefix(filepath.Base(path), snapshotterPrefix)
	if !ok || name == "" {
		return "", fmt.Errorf("cri %s: image filesystem %s: the path has no snapshotter: set containerd.snapshotter",
			r.socket, path)
	}
	return name, nil
}

// imagePath returns the mount point of the image file system.
func (r *Runtime) imagePath(ctx context.Context) (path string, err error) {
	err = r.with(ctx, callTimeout, func(ctx context.Context, c session) error {
		answer, err := c.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
		if err != nil {
			return fmt.Errorf("image filesystem: %w", readable(err))
		}
		// The first belongs to the default snapshotter; kubelet reads no other.
		if all := answer.GetImageFilesystems(); len(all) > 0 {
			path = all[0].GetFsId().GetMountpoint()
		}
		if path == "" {
			return errors.New("image filesystem: the runtime reports none")
		}
		return nil
	})
	return path, err
}

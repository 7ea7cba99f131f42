// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/policy"
)

// snapshotterPrefix is how containerd names the directory of a snapshotter
// (plugin type and id; internal/cri/config.getImageFSPath).
const snapshotterPrefix = "io.containerd.snapshotter.v1."

// Filesystem tells where the runtime unpacks its images, and how full it is
// there. Free is what kubelet calls available: without the blocks that the file
// system reserves for root.
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

// Snapshotter is the name of the snapshotter that the runtime unpacks with: the
// last element of its directory says it. What says nothing is an error, for
// with another snapshotter everything would be unpacked twice.
func (r *Runtime) Snapshotter(ctx context.Context) (string, error) {
	path, err := r.imagePath(ctx)
	if err != nil {
		return "", err
	}
	name, ok := strings.CutPrefix(filepath.Base(path), snapshotterPrefix)
	if !ok || name == "" {
		return "", fmt.Errorf("cri %s: image filesystem %s: names no snapshotter: set containerd.snapshotter",
			r.socket, path)
	}
	return name, nil
}

// imagePath is the mount point that CRI gives for its image filesystem.
func (r *Runtime) imagePath(ctx context.Context) (path string, err error) {
	err = r.with(ctx, callTimeout, func(ctx context.Context, c session) error {
		answer, err := c.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
		if err != nil {
			return fmt.Errorf("image filesystem: %w", said(err))
		}
		// The first is that of the default snapshotter; kubelet reads no other.
		if all := answer.GetImageFilesystems(); len(all) > 0 {
			path = all[0].GetFsId().GetMountpoint()
		}
		if path == "" {
			return errors.New("image filesystem: the runtime names none")
		}
		return nil
	})
	return path, err
}

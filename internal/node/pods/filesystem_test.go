// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// filesystems returns an answer of ImageFsInfo.
func filesystems(paths ...string) func() (*cri.ImageFsInfoResponse, error) {
	answer := &cri.ImageFsInfoResponse{}
	for _, path := range paths {
		answer.ImageFilesystems = append(answer.ImageFilesystems,
			&cri.FilesystemUsage{FsId: &cri.FilesystemIdentifier{Mountpoint: path}})
	}
	return func() (*cri.ImageFsInfoResponse, error) { return answer, nil }
}

func TestFilesystem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, _ := serve(t, &fakeRuntime{filesystem: filesystems(dir, "/nowhere")})
	got, err := r.Filesystem(t.Context())
	require.NoError(t, err)
	var stat unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &stat))
	assert.Equal(t, dir, got.Path)
	assert.Equal(t, int64(stat.Blocks*uint64(stat.Frsize)), got.Size)
	assert.Positive(t, got.Free)
	assert.LessOrEqual(t, got.Free, got.Size)
}

// A filesystem with known figures distinguishes bytes from blocks, and free from used space.
func TestFilesystemFigures(t *testing.T) {
	t.Parallel()
	const size, used = 16 << 20, 3 << 20
	dir := t.TempDir()
	require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "size=16m"))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	r, _ := serve(t, &fakeRuntime{filesystem: filesystems(dir)})
	empty, err := r.Filesystem(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, size, empty.Size)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "layer"), make([]byte, used), 0o600))
	full, err := r.Filesystem(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, size, full.Size)
	assert.EqualValues(t, used, empty.Free-full.Free)
}

func TestSnapshotter(t *testing.T) {
	t.Parallel()
	for path, name := range map[string]string{
		"/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs": "overlayfs",
		"/var/lib/containerd/io.containerd.snapshotter.v1.native/":   "native",
		"/io.containerd.snapshotter.v1.x.y":                          "x.y",
	} {
		r, _ := serve(t, &fakeRuntime{filesystem: filesystems(path, "/a/io.containerd.snapshotter.v1.zfs")})
		got, err := r.Snapshotter(t.Context())
		require.NoError(t, err, path)
		assert.Equal(t, name, got)
	}
}

// oddFilesystems are unusable answers of CRI, with the errors for the filesystem and for the snapshotter; empty: no
// error.
var oddFilesystems = map[string]struct {
	answer                  func() (*cri.ImageFsInfoResponse, error)
	filesystem, snapshotter string
}{
	"none": {filesystems(), "image filesystem: the runtime reports none", "image filesystem: the runtime reports none"},
	"no mount point": {
		filesystems("", "/a/io.containerd.snapshotter.v1.zfs"), // another snapshotter's directory does not count
		"image filesystem: the runtime reports none", "image filesystem: the runtime reports none",
	},
	"without an id": {
		func() (*cri.ImageFsInfoResponse, error) {
			return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{}}}, nil
		},
		"image filesystem: the runtime reports none", "image filesystem: the runtime reports none",
	},
	"not there": {
		filesystems("/nowhere/io.containerd.snapshotter.v1.native"),
		"image filesystem /nowhere/io.containerd.snapshotter.v1.native: no such file or directory", "",
	},
	"a path of its own": {
		filesystems("/"), "", "image filesystem /: the path has no snapshotter: set containerd.snapshotter",
	},
	"a snapshotter without a name": {
		filesystems("/io.containerd.snapshotter.v1."),
		"image filesystem /io.containerd.snapshotter.v1.: no such file or directory",
		"image filesystem /io.containerd.snapshotter.v1.: the path has no snapshotter: set containerd.snapshotter",
	},
	"below a snapshotter's": {
		filesystems("/io.containerd.snapshotter.v1.native/data"),
		"image filesystem /io.containerd.snapshotter.v1.native/data: no such file or directory",
		"image filesystem /io.containerd.snapshotter.v1.native/data: the path has no snapshotter: set containerd.snapshotter",
	},
	"an error": {
		func() (*cri.ImageFsInfoResponse, error) { return nil, status.Error(codes.Unavailable, "starting") },
		"image filesystem: Unavailable: starting", "image filesystem: Unavailable: starting",
	},
}

func TestOddFilesystems(t *testing.T) {
	t.Parallel()
	for name, odd := range oddFilesystems {
		r, socket := serve(t, &fakeRuntime{filesystem: odd.answer})
		says := func(want string, err error) {
			if want == "" {
				assert.NoError(t, err, name)
			} else {
				assert.EqualError(t, err, "cri "+socket+": "+want, name)
			}
		}
		_, err := r.Filesystem(t.Context())
		says(odd.filesystem, err)
		_, err = r.Snapshotter(t.Context())
		says(odd.snapshotter, err)
	}
}

// Every container that has not been removed counts: ended ones, those of other pods, and those whose sandbox is gone.
func TestUsed(t *testing.T) {
	t.Parallel()
	f := oneContainer()
	other := container("id2", "api", "app", 0, 1)
	other.ImageId = digest.FromString("app").String()
	ended := container("id3", "uid", "velum", 1, 2)
	ended.ImageRef, ended.State = digest.FromString("old").String(), cri.ContainerState_CONTAINER_EXITED
	unknown := container("id4", "gone", "x", 0, 1)
	f.containers[0].ImageRef = config.String()
	f.containers = append(f.containers, other, ended, unknown)
	r, _ := serve(t, f)
	found, used, err := r.Containers(t.Context())
	require.NoError(t, err)
	assert.Len(t, found, 1)
	assert.ElementsMatch(t, []digest.Digest{config, digest.FromString("app"), digest.FromString("old")}, used)

	// A container that was removed during the status query still counts.
	f.status = func(context.Context) (*cri.ContainerStatusResponse, error) {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	found, used, err = r.Containers(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
	assert.Len(t, used, 3)
}

// SPDX-License-Identifier: Apache-2.0

package podfiles

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
)

// Each kind of file is handled as in extractFromDir of k8s.io/kubernetes v1.34.4, pkg/kubelet/config/file.go: it
// follows symlinks, and ignores all but regular files.
func TestFilesAreReadAsByKubelet(t *testing.T) {
	t.Parallel()
	link := func(target string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { require.NoError(t, os.Symlink(target, path)) }
	}
	for name, c := range map[string]struct {
		make       func(t *testing.T, path string)
		followed   string
		passedOver bool
	}{
		"directory":            {unsafeThings["directory"].make, "", true},
		"fifo":                 {unsafeThings["fifo"].make, "", true},
		"symlink":              {unsafeThings["symlink"].make, "old", false},
		"writable by others":   {unsafeThings["world-writable"].make, "old", false},
		"of another user":      {unsafeThings["foreign owner"].make, "old", false},
		"larger than we read":  {unsafeThings["too large"].make, "", false},
		"symlink to nowhere":   {link("gone.yaml"), "", true},
		"symlink to itself":    {link("bad.yaml"), "", true},
		"symlink to directory": {link("."), "", true},
		"symlink to a device":  {link("/dev/null"), "", true},
		"symlink that leads nowhere for the daemon alone": {link("/root/none/velum.yaml"), "", false},
		"symlink to such a symlink": {func(t *testing.T, path string) {
			require.NoError(t, os.Symlink("/root/none/velum.yaml", filepath.Join(filepath.Dir(path), ".link")))
			require.NoError(t, os.Symlink(".link", path))
		}, "", false},
		"symlink through a symlink to such a directory": {func(t *testing.T, path string) {
			require.NoError(t, os.Symlink("/home/none", filepath.Join(filepath.Dir(path), ".dir")))
			require.NoError(t, os.Symlink(".dir/velum.yaml", path))
		}, "", false},
		"symlink to a symlink": {func(t *testing.T, path string) {
			put(t, filepath.Dir(path), ".target", "old")
			require.NoError(t, os.Symlink(".target", filepath.Join(filepath.Dir(path), ".link")))
			require.NoError(t, os.Symlink(".link", path))
		}, "old", false},
		"socket": {func(t *testing.T, path string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
		}, "", true},
		"device": {func(t *testing.T, path string) {
			require.NoError(t, syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|3))
		}, "", true},
		"as large as kubelet does not read": {func(t *testing.T, path string) {
			put(t, filepath.Dir(path), filepath.Base(path), "")
			require.NoError(t, os.Truncate(path, kubeletMax))
		}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiles(t)
			c.make(t, filepath.Join(f.dirs.PodManifests, "bad.yaml"))
			put(t, f.dirs.PodManifests, "good.yaml", "good")
			files, err := f.PodManifests(t.Context())
			require.NoError(t, err)
			require.Len(t, files, 2)
			require.Error(t, files[0].Err, "it is never written")
			assert.Nil(t, files[0].Data)
			assert.Equal(t, c.followed, string(files[0].Followed))
			assert.Equal(t, c.passedOver, files[0].PassedOver)
			assert.Equal(t, !c.passedOver && c.followed == "", files[0].IsUnread())
			assert.Equal(t, data("good.yaml", "good"), files[1])
		})
	}
}

// kubelet reads a file even if the agent rejects its name.
func TestFileWithABadNameIsReadAsByKubelet(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	put(t, f.dirs.PodManifests, "velum\n.yaml", "kind: Pod\nmetadata: {name: velum}\n")
	files, err := f.PodManifests(t.Context())
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Error(t, files[0].Err)
	assert.Equal(t, "default/velum", files[0].Defines())
}

// Files that kubelet reads and the agent must not write count towards the limit of all files.
func TestFollowedFilesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	large := strings.Repeat("#", maxFile)
	for n := range maxTotal/maxFile + 1 {
		name := string(rune('a'+n)) + ".yaml"
		put(t, f.dirs.PodManifests, name, large)
		require.NoError(t, os.Chmod(filepath.Join(f.dirs.PodManifests, name), 0o666))
	}
	files, err := f.PodManifests(t.Context())
	require.NoError(t, err)
	total := 0
	for _, file := range files {
		total += len(file.Content())
	}
	assert.Equal(t, maxTotal, total)
	assert.True(t, node.PodFile.IsUnread(files[len(files)-1]))
}

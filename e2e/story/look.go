// SPDX-License-Identifier: Apache-2.0

package story

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Names returns the entries of a directory, including dot files.
func Names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

// View is the state of a node that must not change in case of an error: the files below Root, and containerd's image
// records. It excludes the agent's own data (record, status, lock, sockets, pins), but includes the pod manifests that
// wait for approval.
type View struct {
	Files  map[string]File
	images map[string]string // digest by name
	leases []string
}

// File has the attributes that change when a program touches a file.
type File struct {
	Mode     fs.FileMode
	Inode    uint64
	UID      uint32
	Modified time.Time
	Content  string // content, or a link's target
}

// Look takes a view, without files whose paths begin with one of except.
func Look(t *testing.T, n *node.Node, except ...string) View {
	t.Helper()
	v := View{Files: map[string]File{}}
	for _, dir := range []string{"etc", "usr", WaitingDir} {
		err := filepath.WalkDir(n.Path(dir), func(path string, _ fs.DirEntry, err error) error {
			name := strings.TrimPrefix(path, n.Root+"/")
			for _, prefix := range except {
				if strings.HasPrefix(name+"/", prefix) || name == prefix {
					return nil
				}
			}
			if err == nil {
				v.Files[name], err = inspect(path)
			}
			return err
		})
		if dir != WaitingDir || !os.IsNotExist(err) {
			require.NoError(t, err)
		}
	}
	if n.Containerd != nil {
		v.images, v.leases = Stored(t, n)
	}
	return v
}

func inspect(path string) (File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return File{}, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	f := File{Mode: info.Mode(), Inode: stat.Ino, UID: stat.Uid}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		f.Content, err = os.Readlink(path)
	case info.Mode().IsRegular():
		var data []byte
		data, err = os.ReadFile(path)
		f.Content = string(data)
	}
	if !info.IsDir() { // a directory's time changes with temporary files
		f.Modified = info.ModTime()
	}
	return f, err
}

// Unchanged asserts that the node looks as before.
func (v View) Unchanged(t *testing.T, n *node.Node, except ...string) {
	t.Helper()
	now := Look(t, n, except...)
	assert.Equal(t, v.Files, now.Files)
	assert.Equal(t, v.images, now.images)
	assert.Equal(t, v.leases, now.leases, "leases")
}

// Rel publishes an image with its own small layer under a long tag, and returns its digest.
func Rel(n *node.Node, repository, long string) string {
	var seed uint64
	for _, c := range []byte(repository + long) {
		seed = seed*31 + uint64(c)
	}
	return n.Registry.Publish(repository, long, node.Image{Layers: []node.Layer{{Seed: seed, Size: 100 << 10}}})
}

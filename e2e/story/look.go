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

// Names are the entries of a directory, those with a dot too.
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

// View is all of a node that must stay as it is where something is wrong: the
// files below Root, and containerd's image records. What the agent keeps for
// itself (record, status, lock, sockets, pins) is left out, but not the pod
// manifests that wait for approval.
type View struct {
	Files  map[string]File
	images map[string]string // name to digest
	leases []string
}

// File has what shows that a program touched a file.
type File struct {
	Mode     fs.FileMode
	Inode    uint64
	UID      uint32
	Modified time.Time
	Content  string // bytes, or a link's target
}

// Look takes a view, without the files that begin with one of except.
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
	if !info.IsDir() { // a directory's changes with the temporary files that come and go
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

// Rel is a long tag of an image with one small layer of its own.
func Rel(n *node.Node, repository, long string) string {
	var seed uint64
	for _, c := range []byte(repository + long) {
		seed = seed*31 + uint64(c)
	}
	return n.Registry.Publish(repository, long, node.Image{Layers: []node.Layer{{Seed: seed, Size: 100 << 10}}})
}

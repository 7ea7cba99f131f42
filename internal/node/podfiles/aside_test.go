// SPDX-License-Identifier: Apache-2.0

package podfiles

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

func TestUnsafeThingsAreNotSetAside(t *testing.T) {
	t.Parallel()
	for name, thing := range unsafeThings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiles(t)
			thing.make(t, filepath.Join(f.dirs.PodManifests, "bad.yaml"))
			require.Error(t, f.SetAside(t.Context(), data("bad.yaml", "old")))
			assert.NoFileExists(t, filepath.Join(f.dirs.PodManifests, ".bad.yaml.image-update-agent-aside"))
			_, err := os.Lstat(filepath.Join(f.dirs.PodManifests, "bad.yaml"))
			require.NoError(t, err)
		})
	}
}

func TestFileOpenForWritingIsNotSetAside(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	put(t, f.dirs.PodManifests, "a.yaml", "read")
	writer, err := os.OpenFile(filepath.Join(f.dirs.PodManifests, "a.yaml"), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer writer.Close()
	require.ErrorIs(t, f.SetAside(t.Context(), data("a.yaml", "read")), release.ErrConflict)
}

// An apply sets a file aside and writes another one in its place: the same users can read it.
func TestAFileInThePlaceOfOneSetAsideIsForTheSameUsers(t *testing.T) {
	t.Parallel()
	for _, mode := range []fs.FileMode{0o644, 0o640, 0o600, 0o400} {
		f := newFiles(t)
		put(t, f.dirs.PodManifests, "a.yaml", "old")
		path := filepath.Join(f.dirs.PodManifests, "a.yaml")
		require.NoError(t, os.Chmod(path, mode))
		require.NoError(t, os.Chown(path, 0, 42))
		require.NoError(t, f.SetAside(t.Context(), data("a.yaml", "old")))
		require.NoError(t, f.Write(t.Context(), node.PodFile{Name: "a.yaml"}, []byte("new")))
		_, err := f.PutBack(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "new", content(t, f.dirs.PodManifests, "a.yaml"))
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode())
		assert.Equal(t, uint32(42), info.Sys().(*syscall.Stat_t).Gid)
	}
}

func TestFilesThatAreGoneAreThoseWithoutAnotherInTheirPlace(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	for _, name := range []string{"a.yaml", "b.yaml", "c.yaml"} {
		put(t, f.dirs.PodManifests, name, "read")
	}
	gone, err := f.Aside(t.Context())
	require.NoError(t, err)
	assert.Empty(t, gone)
	for _, name := range []string{"c.yaml", "b.yaml", "a.yaml"} {
		require.NoError(t, f.SetAside(t.Context(), data(name, "read")))
	}
	put(t, f.dirs.PodManifests, "b.yaml", "another")
	gone, err = f.Aside(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"a.yaml", "c.yaml"}, gone)
	require.NoError(t, os.Chmod(f.dirs.PodManifests, 0o777))
	_, err = f.Aside(t.Context())
	require.ErrorIs(t, err, nodefile.ErrUnsafe)
}

func TestUnreadFileIsNotSetAside(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	for _, was := range []node.PodFile{{Name: "a.yaml"}, {Name: "a.yaml", Data: []byte("x"), Err: nodefile.ErrUnsafe}} {
		require.EqualError(t, f.SetAside(t.Context(), was), "podfiles: a.yaml: cannot set aside a file that was not read")
	}
}

func TestExistingDotNameIsAnError(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	put(t, f.dirs.PodManifests, "a.yaml", "read")
	put(t, f.dirs.PodManifests, "target", "a person's")
	require.NoError(t, os.Symlink("target", filepath.Join(f.dirs.PodManifests, ".a.yaml.image-update-agent-aside")))
	err := f.SetAside(t.Context(), data("a.yaml", "read"))
	require.ErrorIs(t, err, nodefile.ErrUnsafe)
	require.ErrorContains(t, err, "podfiles: set aside ")
	require.ErrorContains(t, err, ".a.yaml.image-update-agent-aside: unsafe: symlink")
	_, err = f.PutBack(t.Context())
	require.ErrorIs(t, err, nodefile.ErrUnsafe)
	require.ErrorContains(t, err, "podfiles: put back ")
	assert.Equal(t, map[string]string{"a.yaml": "read", "target": "a person's"}, listed(t, f))
}

func TestSettingAsideNeedsTheDirectory(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	put(t, f.dirs.PodManifests, ".a.yaml.image-update-agent-aside", "read")
	_, err := f.PutBack(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, f.SetAside(ctx, data("a.yaml", "read")), context.Canceled)
	require.NoError(t, os.Chmod(f.dirs.PodManifests, 0o777))
	back, err := f.PutBack(t.Context())
	require.ErrorIs(t, err, nodefile.ErrUnsafe)
	assert.Empty(t, back)
	assert.NoFileExists(t, filepath.Join(f.dirs.PodManifests, "a.yaml"))
	require.NoError(t, os.RemoveAll(f.dirs.PodManifests))
	back, err = f.PutBack(t.Context())
	require.NoError(t, err, "no directory: nothing is aside")
	assert.Empty(t, back)
	require.Error(t, f.SetAside(t.Context(), data("a.yaml", "read")))
}

// host is a model of kubelet's directory: its files, and the ones set aside.
type host struct {
	files       *Files
	seen, aside map[string]string
	writes      int // number of contents created
	left        int // number of temporary files left
}

func (n *host) path(name string) string { return filepath.Join(n.files.dirs.PodManifests, name) }

func (n *host) hidden(name string) string { return n.path("." + name + ".image-update-agent-aside") }

// next returns a content that no file has had.
func (n *host) next() string { n.writes++; return strconv.Itoa(n.writes) }

func (n *host) was(name string) node.PodFile {
	if text, there := n.seen[name]; there {
		return data(name, text)
	}
	return node.PodFile{Name: name}
}

func (n *host) setAside(t *rapid.T, name string) {
	text, there := n.seen[name]
	err := n.files.SetAside(context.Background(), data(name, text))
	if !there {
		require.ErrorIs(t, err, release.ErrConflict)
		return
	}
	require.NoError(t, err)
	delete(n.seen, name)
	n.aside[name] = text
}

func (n *host) setAsideLate(t *rapid.T, name string) {
	err := n.files.SetAside(context.Background(), data(name, "read before somebody's edit"))
	require.ErrorIs(t, err, release.ErrConflict)
}

func (n *host) write(t *rapid.T, name string) {
	text := n.next()
	require.NoError(t, n.files.Write(context.Background(), n.was(name), []byte(text)))
	n.seen[name] = text
}

// person saves a file as an editor does: as a new one, so that a second link to the old one keeps its content.
func (n *host) person(t *rapid.T, name string) {
	n.seen[name] = n.next()
	require.NoError(t, os.RemoveAll(n.path(name)))
	require.NoError(t, os.WriteFile(n.path(name), []byte(n.seen[name]), 0o600))
}

func (n *host) personRemoves(t *rapid.T, name string) {
	require.NoError(t, os.RemoveAll(n.path(name)))
	delete(n.seen, name)
}

// killed creates a state in which a process may die: both names link to the file, or a temporary file is left, each
// with its own name (a rename onto another link to the same file does nothing).
func (n *host) killed(t *rapid.T, name string) {
	_, seen := n.seen[name]
	_, aside := n.aside[name]
	switch {
	case seen && !aside:
		require.NoError(t, os.Link(n.path(name), n.hidden(name)))
		n.aside[name] = n.seen[name]
	case aside && !seen:
		require.NoError(t, os.Link(n.hidden(name), n.path(name)))
		n.seen[name] = n.aside[name]
	case aside:
		n.left++
		temporary := fmt.Sprintf(".%s.image-update-agent-%016x", name, n.left)
		require.NoError(t, os.Rename(n.hidden(name), n.path(temporary)))
		delete(n.aside, name)
	}
}

func (n *host) putBack(t *rapid.T, _ string) {
	var want []string
	for name, text := range n.aside {
		if _, there := n.seen[name]; !there {
			n.seen[name] = text
			want = append(want, name)
		}
	}
	slices.Sort(want)
	clear(n.aside)
	back, err := n.files.PutBack(context.Background())
	require.NoError(t, err)
	require.Equal(t, want, back)
}

// check compares the directory with the model.
func (n *host) check(t *rapid.T) {
	require.Equal(t, n.seen, listed(t, n.files))
	for name, text := range n.aside {
		got, err := os.ReadFile(n.hidden(name))
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
}

// TestNoSequenceLosesAFile: after any sequence of operations of the agent and a person, and of kills, PutBack leaves
// each file once, with its newest content.
func TestNoSequenceLosesAFile(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	rapid.Check(t, func(rt *rapid.T) {
		require.NoError(rt, os.RemoveAll(f.dirs.PodManifests))
		require.NoError(rt, os.Mkdir(f.dirs.PodManifests, 0o755))
		n := &host{files: f, seen: map[string]string{}, aside: map[string]string{}}
		acts := map[string]func(*rapid.T, string){
			"set aside": n.setAside, "set aside late": n.setAsideLate, "write": n.write, "person writes": n.person,
			"person removes": n.personRemoves, "killed": n.killed, "put back": n.putBack,
		}
		names := slices.Sorted(maps.Keys(acts))
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			act := rapid.SampledFrom(names).Draw(rt, "act")
			acts[act](rt, rapid.SampledFrom([]string{"a", "a-b", "c.yaml"}).Draw(rt, "file"))
			n.check(rt)
		}
		n.putBack(rt, "")
		require.NoError(rt, f.Sweep(t.Context()))
		n.check(rt)
		left, err := os.ReadDir(f.dirs.PodManifests)
		require.NoError(rt, err)
		require.Len(rt, left, len(n.seen), "nothing but the files")
	})
}

func listed(t require.TestingT, files node.PodFiles) map[string]string {
	list, err := files.PodManifests(context.Background())
	require.NoError(t, err)
	out := map[string]string{}
	for _, f := range list {
		require.NoError(t, f.Err, f.Name)
		out[f.Name] = string(f.Data)
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package podfiles

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// newFiles creates the two directories that exist on a node.
func newFiles(t *testing.T) *Files {
	t.Helper()
	root := t.TempDir()
	f := New(Dirs{
		Templates: filepath.Join(root, "templates"), PodManifests: filepath.Join(root, "kubelet"),
		Rendered: filepath.Join(root, "lib", "rendered"),
	})
	require.NoError(t, os.Mkdir(f.dirs.Templates, 0o755))
	require.NoError(t, os.Mkdir(f.dirs.PodManifests, 0o755))
	return f
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(data)
}

func data(name, content string) node.PodFile {
	return node.PodFile{Name: name, Data: []byte(content)}
}

// unsafeThings are things in place of a pod manifest, and the error's text.
var unsafeThings = map[string]struct {
	make func(t *testing.T, path string)
	why  string
}{
	"symlink": {func(t *testing.T, path string) {
		put(t, filepath.Dir(path), ".target", "old")
		require.NoError(t, os.Symlink(".target", path))
	}, "symlink"},
	"directory": {func(t *testing.T, path string) {
		require.NoError(t, os.Mkdir(path, 0o755))
		put(t, path, "inner.yaml", "old")
	}, "directory"},
	"fifo": {func(t *testing.T, path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }, "fifo"},
	"world-writable": {func(t *testing.T, path string) {
		put(t, filepath.Dir(path), filepath.Base(path), "old")
		require.NoError(t, os.Chmod(path, 0o666))
	}, "others may write to it"},
	"foreign owner": {func(t *testing.T, path string) {
		put(t, filepath.Dir(path), filepath.Base(path), "old")
		require.NoError(t, os.Chown(path, 4711, 4711))
	}, "owned by user 4711"},
	"too large": {func(t *testing.T, path string) {
		put(t, filepath.Dir(path), filepath.Base(path), strings.Repeat("#", maxFile+1))
	}, "too large"},
}

func TestUnsafeFilesAreListedAndNotChanged(t *testing.T) {
	t.Parallel()
	for name, thing := range unsafeThings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiles(t)
			for _, dir := range []string{f.dirs.Templates, f.dirs.PodManifests} {
				thing.make(t, filepath.Join(dir, "bad.yaml"))
				put(t, dir, "good.yaml", "good")
			}
			before, err := os.Lstat(filepath.Join(f.dirs.PodManifests, "bad.yaml"))
			require.NoError(t, err)
			for _, list := range []func(context.Context) ([]node.PodFile, error){f.Templates, f.PodManifests} {
				files, err := list(t.Context())
				require.NoError(t, err, "one bad file hides no other")
				require.Len(t, files, 2)
				assert.Equal(t, "bad.yaml", files[0].Name)
				assert.Nil(t, files[0].Data)
				require.ErrorContains(t, files[0].Err, thing.why)
				assert.Equal(t, data("good.yaml", "good"), files[1])
			}

			listed := node.PodFile{Name: "bad.yaml", Err: nodefile.ErrUnsafe}
			require.ErrorIs(t, f.Write(t.Context(), listed, []byte("new")), nodefile.ErrUnsafe)
			require.Error(t, f.Write(t.Context(), node.PodFile{Name: "bad.yaml"}, []byte("new")))
			require.Error(t, f.Write(t.Context(), data("bad.yaml", "old"), []byte("new")))
			require.Error(t, f.Remove(t.Context(), data("bad.yaml", "old")))
			require.Error(t, f.Remove(t.Context(), listed))
			after, err := os.Lstat(filepath.Join(f.dirs.PodManifests, "bad.yaml"))
			require.NoError(t, err)
			assert.True(t, os.SameFile(before, after))
			assert.Equal(t, before.ModTime(), after.ModTime())
		})
	}
}

func TestKubeletsDirectoryIsReadAsByKubelet(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	for _, name := range []string{"a.yaml", "b.yaml.bak", "c", "d~", ".hidden", ".e.yaml.image-update-agent-0123456789abcdef"} {
		put(t, f.dirs.PodManifests, name, name)
	}
	put(t, f.dirs.PodManifests, "empty.yaml", "")
	put(t, f.dirs.PodManifests, "x\nREADY=1", "")
	files, err := f.PodManifests(t.Context())
	require.NoError(t, err)
	require.Len(t, files, 6)
	assert.Equal(t, []node.PodFile{data("a.yaml", "a.yaml"), data("b.yaml.bak", "b.yaml.bak"), data("c", "c"), data("d~", "d~")}, files[:4])
	assert.Equal(t, node.PodFile{Name: "empty.yaml", Data: []byte{}}, files[4], "empty is not absent")
	assert.Equal(t, `"x\nREADY=1"`, files[5].Name)
	require.ErrorIs(t, files[5].Err, nodefile.ErrName)
}

func TestTemplatesAreSelectedBySuffix(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	for _, name := range []string{"a.yaml", "b.yml", "c.json", "README", "d.yaml.rpmnew", "e.sh", ".f.yaml"} {
		put(t, f.dirs.Templates, name, name)
	}
	files, err := f.Templates(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []node.PodFile{data("a.yaml", "a.yaml"), data("b.yml", "b.yml"), data("c.json", "c.json")}, files)
}

func TestMissingDirectories(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	require.NoError(t, os.Remove(f.dirs.Templates))
	require.NoError(t, os.Remove(f.dirs.PodManifests))
	templates, err := f.Templates(t.Context())
	require.NoError(t, err)
	assert.Empty(t, templates)
	waiting, err := f.Waiting(t.Context())
	require.NoError(t, err)
	assert.Empty(t, waiting)
	_, err = f.PodManifests(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, f.dirs.PodManifests)
	require.ErrorIs(t, f.Write(t.Context(), node.PodFile{Name: "a.yaml"}, []byte("x")), fs.ErrNotExist)
	require.NoError(t, f.Sweep(t.Context()))
}

func TestDirectoryOfAnotherOwnerIsNotUsed(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	for _, dir := range []string{f.dirs.Templates, f.dirs.PodManifests} {
		require.NoError(t, os.Chmod(dir, 0o777))
	}
	_, templates := f.Templates(t.Context())
	_, manifests := f.PodManifests(t.Context())
	for _, err := range []error{
		templates, manifests, f.Sweep(t.Context()), f.Write(t.Context(), node.PodFile{Name: "a"}, []byte("x")),
	} {
		require.ErrorIs(t, err, nodefile.ErrUnsafe)
	}
}

func TestAllFilesTogetherAreBounded(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	const count = maxTotal / maxFile
	for i := range count + 1 {
		put(t, f.dirs.PodManifests, fmt.Sprintf("%02d.yaml", i), strings.Repeat("#", maxFile))
	}
	files, err := f.PodManifests(t.Context())
	require.NoError(t, err)
	require.Len(t, files, count+1)
	for _, file := range files[:count] {
		require.NoError(t, file.Err)
	}
	require.ErrorIs(t, files[count].Err, nodefile.ErrTooLarge)
	require.ErrorContains(t, files[count].Err, "for all files together")
}

func TestWriteReplacesTheFileThatWasRead(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	dir := f.dirs.PodManifests
	require.NoError(t, f.Write(t.Context(), node.PodFile{Name: "a.yaml"}, []byte("one")))
	info, err := os.Stat(filepath.Join(dir, "a.yaml"))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())

	require.NoError(t, os.Chmod(filepath.Join(dir, "a.yaml"), 0o640))
	require.NoError(t, f.Write(t.Context(), data("a.yaml", "one"), []byte("two")))
	assert.Equal(t, "two", content(t, dir, "a.yaml"))
	info, err = os.Stat(filepath.Join(dir, "a.yaml"))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o640), info.Mode(), "an existing file keeps its mode")

	require.NoError(t, f.Remove(t.Context(), data("a.yaml", "two")))
	assert.NoFileExists(t, filepath.Join(dir, "a.yaml"))
	require.NoError(t, f.Remove(t.Context(), data("a.yaml", "two")), "gone is what was asked for")
}

func TestFileOpenForWritingIsAConflict(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	put(t, f.dirs.PodManifests, "a.yaml", "read")
	writer, err := os.OpenFile(filepath.Join(f.dirs.PodManifests, "a.yaml"), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer writer.Close()
	require.ErrorIs(t, f.Write(t.Context(), data("a.yaml", "read"), []byte("ours")), release.ErrConflict)
	require.ErrorIs(t, f.Remove(t.Context(), data("a.yaml", "read")), release.ErrConflict)
	require.ErrorIs(t, f.SetAside(t.Context(), data("a.yaml", "read")), release.ErrConflict)
}

func TestUnreadableDataIsNotWritten(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	for _, bad := range [][]byte{nil, {}, make([]byte, maxFile+1)} {
		require.ErrorContains(t, f.Write(t.Context(), node.PodFile{Name: "a.yaml"}, bad), "podfiles: a.yaml: not written")
		if bad != nil {
			require.ErrorContains(t, f.Keep(t.Context(), "a.yaml", bad), "not written")
		}
	}
	for _, name := range []string{"", ".a.yaml", "../a.yaml", "a/b.yaml", "a\x00", "..", strings.Repeat("a", 256)} {
		require.ErrorIs(t, f.Write(t.Context(), node.PodFile{Name: name}, []byte("x")), nodefile.ErrName)
		require.ErrorIs(t, f.Keep(t.Context(), name, []byte("x")), nodefile.ErrName)
	}
	files, err := f.PodManifests(t.Context())
	require.NoError(t, err)
	assert.Empty(t, files)
}

func TestKeptFilesAreForRoot(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	require.NoError(t, f.Keep(t.Context(), "a.yaml", []byte("a")))
	for path, mode := range map[string]fs.FileMode{"": 0o700, "a.yaml": 0o600} {
		info, err := os.Stat(filepath.Join(f.dirs.Rendered, path))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm())
	}
}

func TestSweepRemovesTemporaryFilesOfACrash(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	require.NoError(t, f.Keep(t.Context(), "a.yaml", []byte("a")))
	for _, dir := range []string{f.dirs.PodManifests, f.dirs.Rendered} {
		put(t, dir, ".a.yaml.image-update-agent-0123456789abcdef", "half")
		put(t, dir, ".a.yaml.swp", "an editor's")
	}
	require.NoError(t, f.Sweep(t.Context()))
	for _, dir := range []string{f.dirs.PodManifests, f.dirs.Rendered} {
		assert.NoFileExists(t, filepath.Join(dir, ".a.yaml.image-update-agent-0123456789abcdef"))
		assert.FileExists(t, filepath.Join(dir, ".a.yaml.swp"))
	}
}

func TestCanceledContextDoesNothing(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	put(t, f.dirs.PodManifests, "a.yaml", "read")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.PodManifests(ctx)
	for _, err := range []error{
		err, f.Write(ctx, data("a.yaml", "read"), []byte("x")), f.Remove(ctx, data("a.yaml", "read")),
		f.Keep(ctx, "a.yaml", []byte("x")), f.Sweep(ctx),
	} {
		require.ErrorIs(t, err, context.Canceled)
	}
	assert.Equal(t, "read", content(t, f.dirs.PodManifests, "a.yaml"))
}

// TestWriteNeedsTheFileThatWasRead: a write succeeds if and only if the file is as it was read.
func TestWriteNeedsTheFileThatWasRead(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	path := filepath.Join(f.dirs.PodManifests, "a.yaml")
	state := rapid.SampledFrom([]string{"absent", "", "a", "b"})
	rapid.Check(t, func(rt *rapid.T) {
		there, read := state.Draw(rt, "there"), state.Draw(rt, "read")
		require.NoError(t, os.RemoveAll(path))
		if there != "absent" {
			put(t, f.dirs.PodManifests, "a.yaml", there)
		}
		was := node.PodFile{Name: "a.yaml"}
		if read != "absent" {
			was.Data = []byte(read)
		}
		err := f.Write(t.Context(), was, []byte("new"))
		if there == read {
			require.NoError(rt, err)
			require.Equal(rt, "new", content(t, f.dirs.PodManifests, "a.yaml"))
			return
		}
		require.ErrorIs(rt, err, release.ErrConflict)
		if there == "absent" {
			require.NoFileExists(rt, path)
		} else {
			require.Equal(rt, there, content(t, f.dirs.PodManifests, "a.yaml"))
		}
	})
}

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

func TestFilesConform(t *testing.T) {
	t.Parallel()
	agenttest.TestPodFiles(t, underTest)
}

func underTest(t *testing.T) agenttest.FilesUnderTest {
	t.Helper()
	files := newFiles(t)
	put := func(dir string) func(*testing.T, string, []byte) {
		return func(t *testing.T, name string, data []byte) {
			t.Helper()
			path := filepath.Join(dir, name)
			if data == nil {
				require.NoError(t, os.Remove(path))
				return
			}
			require.NoError(t, os.WriteFile(path, data, 0o600))
		}
	}
	return agenttest.FilesUnderTest{
		Files: files, PutTemplate: put(files.dirs.Templates), PutPodManifest: put(files.dirs.PodManifests),
		PutUnsafe: func(t *testing.T, name string) {
			t.Helper()
			require.NoError(t, os.Symlink("elsewhere", filepath.Join(files.dirs.PodManifests, name)))
		},
	}
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

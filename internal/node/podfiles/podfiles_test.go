// SPDX-License-Identifier: Apache-2.0

package podfiles

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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

// foreignEdits are changes by others since the file was read.
var foreignEdits = map[string]struct {
	was  node.PodFile
	edit func(t *testing.T, path string)
	left string // "-": no file
}{
	"edited":               {data("a.yaml", "read"), func(t *testing.T, path string) { put(t, filepath.Dir(path), "a.yaml", "edit") }, "edit"},
	"appended":             {data("a.yaml", "read"), func(t *testing.T, path string) { put(t, filepath.Dir(path), "a.yaml", "read\n") }, "read\n"},
	"truncated":            {data("a.yaml", "read"), func(t *testing.T, path string) { put(t, filepath.Dir(path), "a.yaml", "") }, ""},
	"removed":              {data("a.yaml", "read"), func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }, "-"},
	"created":              {node.PodFile{Name: "a.yaml"}, func(*testing.T, string) {}, "read"},
	"filled, empty before": {data("a.yaml", ""), func(*testing.T, string) {}, "read"},
}

func TestEditOfAnotherProgramIsKept(t *testing.T) {
	t.Parallel()
	for name, foreign := range foreignEdits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiles(t)
			put(t, f.dirs.PodManifests, "a.yaml", "read")
			foreign.edit(t, filepath.Join(f.dirs.PodManifests, "a.yaml"))
			err := f.Write(t.Context(), foreign.was, []byte("ours"))
			require.ErrorIs(t, err, release.ErrConflict)
			if foreign.left == "-" {
				assert.NoFileExists(t, filepath.Join(f.dirs.PodManifests, "a.yaml"))
				return
			}
			assert.Equal(t, foreign.left, content(t, f.dirs.PodManifests, "a.yaml"))
			if foreign.was.Data != nil {
				require.ErrorIs(t, f.Remove(t.Context(), foreign.was), release.ErrConflict)
				assert.FileExists(t, filepath.Join(f.dirs.PodManifests, "a.yaml"))
			}
		})
	}
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

func TestKeptFilesWait(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	require.NoError(t, f.Keep(t.Context(), "a.yaml", nil), "nothing to drop")
	require.NoError(t, f.Keep(t.Context(), "b.yaml", []byte("b")))
	require.NoError(t, f.Keep(t.Context(), "a.yaml", []byte("a")))
	require.NoError(t, f.Keep(t.Context(), "a.yaml", []byte("a2")))
	waiting, err := f.Waiting(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []node.PodFile{data("a.yaml", "a2"), data("b.yaml", "b")}, waiting)
	for path, mode := range map[string]fs.FileMode{"": 0o700, "a.yaml": 0o600} {
		info, err := os.Stat(filepath.Join(f.dirs.Rendered, path))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm())
	}
	require.NoError(t, f.Keep(t.Context(), "a.yaml", nil))
	require.NoError(t, f.Keep(t.Context(), "a.yaml", nil))
	waiting, err = f.Waiting(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []node.PodFile{data("b.yaml", "b")}, waiting)
	manifests, err := f.PodManifests(t.Context())
	require.NoError(t, err)
	assert.Empty(t, manifests, "what waits is not kubelet's")
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

// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxFile is in bytes. The largest file in the tree, a go.sum, has less than a tenth of it.
const maxFile = 1 << 20

// outputDirs are the directories that the Makefile, rpmbuild and the stories write to.
var outputDirs = []string{".git", "bin", "dist", "vendor", "e2e/bin", "e2e/.build"}

// binaryMagic are the first bytes of compiled files: programs and libraries of Linux, Windows and macOS, and Go
// archives.
var binaryMagic = []string{"\x7fELF", "MZ\x90\x00", "\xcf\xfa\xed\xfe", "!<arch>\n"}

func TestTheTreeHasSourcesOnly(t *testing.T) {
	t.Parallel()
	names, err := tracked(t, root)
	require.NoError(t, err)
	assert.Greater(t, len(names), 500, "the list must have the tree")
	for _, problem := range treeProblems(os.DirFS(root), names) {
		t.Error(problem)
	}
}

// tracked lists the files of the tree: those that git tracks, ignored or not. If git fails, as in an unpacked tarball,
// it lists all files except build output.
func tracked(t *testing.T, root string) ([]string, error) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(root, ".git")); err == nil {
		list := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached")
		if out, err := list.Output(); err == nil {
			return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
		}
	}
	return filesBelow(os.DirFS(root))
}

// filesBelow lists all files of fsys but those below outputDirs.
func filesBelow(fsys fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(outputDirs, name) && d.IsDir():
			return fs.SkipDir
		case d.Type().IsRegular() && path.Ext(name) != ".test" && path.Ext(name) != ".prof":
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// treeProblems returns the files that are too large or compiled. It skips files that were removed but are still in git.
func treeProblems(fsys fs.FS, names []string) []string {
	var problems []string
	for _, name := range names {
		info, err := fs.Stat(fsys, name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if info.Size() > maxFile {
			problems = append(problems, fmt.Sprintf("%s: %d bytes, more than %d", name, info.Size(), maxFile))
		}
		if head, err := headOf(fsys, name); err != nil {
			problems = append(problems, err.Error())
		} else if slices.ContainsFunc(binaryMagic, func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) }) {
			problems = append(problems, name+": a compiler wrote it: git rm --cached it")
		}
	}
	return problems
}

func headOf(fsys fs.FS, name string) ([]byte, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, 16))
}

// A clone, a worktree, a checkout of another owner, and a tarball are all listed.
func TestTracked(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Join(tree, path.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(tree, name), []byte(text), 0o600))
	}
	git := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", tree}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	write(".gitignore", "/bin/\n/cmd/*/prog\n")
	write("cmd/prog/prog", "\x7fELF\x02\x01\x01 and more")
	write("bin/prog", "\x7fELF\x02\x01\x01 and more")
	write("room/large.txt", strings.Repeat("x", maxFile+1))
	write("room/edge.txt", strings.Repeat("x", maxFile))
	write("room/room.go", "package room\n")

	fromTarball, err := tracked(t, tree)
	require.NoError(t, err)
	assert.Equal(t, []string{".gitignore", "cmd/prog/prog", "room/edge.txt", "room/large.txt", "room/room.go"}, fromTarball)
	assert.Len(t, treeProblems(os.DirFS(tree), fromTarball), 2)

	git("init", "-q")
	git("add", ".gitignore", "room")
	git("add", "--force", "cmd/prog/prog")
	write("room/untracked.go", "\x7fELF")
	fromGit, err := tracked(t, tree)
	require.NoError(t, err)
	assert.Equal(t, fromTarball, fromGit, "what is ignored and tracked all the same is listed; what is not tracked is not")
	assert.Equal(t, []string{
		"cmd/prog/prog: a compiler wrote it: git rm --cached it",
		fmt.Sprintf("room/large.txt: %d bytes, more than %d", maxFile+1, maxFile),
	}, treeProblems(os.DirFS(tree), fromGit))

	require.NoError(t, os.RemoveAll(filepath.Join(tree, ".git")))
	write(".git", "gitdir: /nowhere\n")
	withoutGit, err := tracked(t, tree)
	require.NoError(t, err)
	assert.Contains(t, withoutGit, "room/untracked.go", "git does not answer: all files")
}

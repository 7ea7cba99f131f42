// SPDX-License-Identifier: Apache-2.0

package filerender_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/face/filerender"
)

// read returns pods with one container, whose image follows "=" in the path.
func read(path string) ([]byte, error) {
	if path == "absent" {
		return nil, os.ErrNotExist
	}
	return []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: r1/team/" + path + ":__TAG__\n"), nil
}

func TestEachRepositoryGetsItsTag(t *testing.T) {
	t.Parallel()
	o := filerender.Options{Set: []string{"velum=4.0.0", "r2/team/db=1.2"}, Rewrite: []string{"r1=r2"}}
	files, err := filerender.Render(o, []string{"velum", "db"}, read, nil)
	require.NoError(t, err)
	require.Len(t, files, 2)
	assert.Contains(t, files[0].Rendered, "image: r2/team/velum:4.0.0\n")
	assert.Contains(t, files[1].Rendered, "image: r2/team/db:1.2\n")
	assert.Equal(t, files[0].Rendered+"---\n"+files[1].Rendered, string(filerender.Text(files)))
}

// Who cannot read a pod manifest, with the secrets in its environment, cannot read what is made of it.
func TestResultsAreForTheUsersOfTheirFiles(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "new/out")
	var paths []string
	modes := map[string]fs.FileMode{"velum": 0o644, "salt": 0o640, "db": 0o600}
	for name, mode := range modes {
		path := filepath.Join(from, name)
		paths = append(paths, path)
		data, _ := read(name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		require.NoError(t, os.Chmod(path, mode))
		require.NoError(t, os.Chown(path, 4711, 42))
	}
	o := filerender.Options{Set: []string{"velum=1", "salt=1", "db=1"}, To: to}
	for n := range 3 { // over its own results, and over those of root
		files, err := filerender.Render(o, paths, os.ReadFile, nil)
		require.NoError(t, err)
		for _, f := range files {
			assert.Empty(t, f.Rendered)
			info, err := os.Stat(f.To)
			require.NoError(t, err)
			assert.Equal(t, modes[filepath.Base(f.To)], info.Mode(), f.To)
			stat := info.Sys().(*syscall.Stat_t)
			assert.Equal(t, []uint32{4711, 42}, []uint32{stat.Uid, stat.Gid}, f.To)
			if n == 1 {
				require.NoError(t, os.WriteFile(f.To, nil, 0o600))
				require.NoError(t, os.Chmod(f.To, 0o644))
				require.NoError(t, os.Chown(f.To, 0, 0))
			}
		}
	}
	info, err := os.Stat(to)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeDir|0o700, info.Mode(), "the directory of the files may be closed to others")
}

func TestMistakesRenderNothing(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "new")
	for want, o := range map[string]filerender.Options{
		`--set "velum": want REPOSITORY=TAG`:                               {Set: []string{"velum"}},
		`--rewrite "r1": want FROM=TO`:                                     {Rewrite: []string{"r1"}},
		`--pull-policy "Sometimes"`:                                        {PullPolicy: "Sometimes"},
		`--set velun=1: matches no image, did you mean "velum"?`:           {Set: []string{"velun=1"}},
		`--rewrite r1/teem=r2: matches no image, did you mean "r1/team"?`:  {Rewrite: []string{"r1/teem=r2"}},
		`--set zzzzzzzz=1: matches no image; the files have r1/team/velum`: {Set: []string{"zzzzzzzz=1"}},
		`r1/team/velum already has its tag from --set velum=1`:             {Set: []string{"velum=1", "team/velum=2"}},
		`velum and velum have the same name`:                               {To: to, Set: []string{"velum=1"}},
	} {
		o.To = to
		paths := []string{"velum"}
		if want == `velum and velum have the same name` {
			paths = append(paths, "velum")
		}
		files, err := filerender.Render(o, paths, read, nil)
		_, usage := errors.AsType[filerender.UsageError](err)
		assert.True(t, usage, want)
		require.ErrorContains(t, err, want)
		assert.Empty(t, files)
	}
	assert.NoDirExists(t, to)
}

// A file that cannot be rendered does not hide the others, and missing tags are named.
func TestOneBadFileDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	files, err := filerender.Render(filerender.Options{Set: []string{"velum=1.0.0", "nosuch=1"}}, []string{"absent", "db", "velum"}, read, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	missing, is := errors.AsType[filerender.MissingTagsError](err)
	require.True(t, is)
	assert.Equal(t, []string{"r1/team/db"}, missing.Repositories)
	require.Len(t, files, 1)
	assert.Equal(t, "velum", files[0].File)
}

const zeros = "@sha256:0000000000000000000000000000000000000000000000000000000000000001"

// An image named by --set gets its tag, or its file is not rendered: never the old image with exit code 0.
func TestUnsettableImageIsAnError(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n"
	for name, c := range map[string]struct{ containers, why string }{
		"tag and digest":      {"  - {name: a, image: 'r:5000/team/lb:2.7" + zeros + "'}\n", "it names a digest, so kubelet starts exactly this image"},
		"same tag and digest": {"  - {name: a, image: 'r:5000/team/lb:2.8" + zeros + "'}\n", "it names a digest"},
		"digest alone":        {"  - name: a\n    image: r:5000/team/lb" + zeros + "\n", "it names a digest"},
		"quoted":              {"  - \"name\": a\n    \"image\": \"r:5000/team/lb:2.7" + zeros + "\"\n", "it names a digest"},
		"one of two":          {"  - {name: a, image: 'r:5000/team/lb:2.7'}\n  - {name: b, image: 'r:5000/team/lb" + zeros + "'}\n", "spec.containers[1].image"},
		"init container":      {"  - {name: b, image: x}\n  initContainers: [{name: a, image: 'r:5000/team/lb" + zeros + "'}]\n", "spec.initContainers[0].image"},
		"block scalar":        {"  - name: a\n    image: >-\n      r:5000/team/lb:2.7\n", "it is a block (| or >)"},
		"several lines":       {"  - name: a\n    image: \"r:5000/\\\n      team/lb:2.7\"\n", ""},
		"shared by an anchor": {"  - name: a\n    image: &i r:5000/team/lb:2.7\n    env: [{name: X, value: *i}]\n", "a YAML anchor shares it"},
		"never pulled":        {"  - {name: a, image: 'r:5000/team/lb:2.7', imagePullPolicy: Never}\n", ""},
		"flow":                {"  - {name: a, image: 'r:5000/team/lb:2.7'}\n", ""},
		"an anchor for two":   {"  - {name: a, image: &i 'r:5000/team/lb:2.7'}\n  - {name: b, image: *i}\n", ""},
		"a merge key":         {"  - &c {name: a, image: 'r:5000/team/lb:2.7'}\n  - {<<: *c, name: b}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := func(string) ([]byte, error) { return []byte(head + c.containers), nil }
			o := filerender.Options{Set: []string{"lb=2.8"}, PullPolicy: "Always"}
			files, err := filerender.Render(o, []string{"a"}, one, nil)
			if c.why == "" {
				require.NoError(t, err)
				assert.Contains(t, files[0].Rendered, "lb:2.8")
				assert.NotContains(t, files[0].Rendered, "lb:2.7")
				return
			}
			assert.Empty(t, files)
			require.ErrorContains(t, err, c.why)
			require.ErrorContains(t, err, "tag 2.8 is not set")
			set, is := errors.AsType[*filerender.NotSetError](err)
			require.True(t, is)
			assert.Equal(t, "2.8", set.Tag)
		})
	}
}

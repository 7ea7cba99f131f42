// SPDX-License-Identifier: Apache-2.0

package podfiles

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// checkout copies testdata/DIR, because a checkout has its own file modes.
func checkout(t *testing.T, dir string) string {
	t.Helper()
	copied := t.TempDir()
	entries, err := os.ReadDir(filepath.Join("testdata", dir))
	require.NoError(t, err)
	for _, entry := range entries {
		put(t, copied, entry.Name(), content(t, filepath.Join("testdata", dir), entry.Name()))
	}
	return copied
}

func TestInstalledTagFiles(t *testing.T) {
	t.Parallel()
	values, problems := TagFiles(t.Context(), []string{checkout(t, "native"), "/no/such/directory", checkout(t, "metadata")})
	assert.Empty(t, problems)
	assert.Equal(t, map[string]string{
		"sles12/velum":                       "4.0.0-rev1",          // its .tag file
		"sles12/haproxy":                     "1.6.11-rev2",         // fields below "image", no .tag: the intermediate one
		"sles12/mariadb":                     "10.0.35-rev3",        // three packages: the newest one
		"registry.suse.com/caasp/v4/etcd":    "3.4.13-rev1",         // the newest intermediate one
		"registry.suse.com/caasp/v4/pause":   "3.2",                 // short only
		"registry.suse.com/caasp/v4/kured":   "1.3.0-rev4-build3.8", // short and long
		"registry.suse.com/caasp/v4/tooling": "stable",              // of another scheme
	}, values)
}

func TestBrokenTagFilesDoNotAffectOthers(t *testing.T) {
	t.Parallel()
	dir := checkout(t, "broken")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "directory-metadata"), 0o755))
	require.NoError(t, os.Symlink("good-metadata", filepath.Join(dir, "link-metadata")))
	put(t, dir, "huge-metadata", strings.Repeat(" ", maxTagFile+1))
	values, problems := TagFiles(t.Context(), []string{dir})
	assert.Equal(t, map[string]string{"sles12/good": "1.0.0-rev1", "sles12/beside": "2.0"}, values)
	want := []string{
		"alone.tag: no .metadata file names", "directory-metadata: unsafe: directory", "half-metadata: invalid character",
		"huge-metadata: too large", "latest.metadata: sles12/latest: no usable tag in [\"latest\"]", "link-metadata: unsafe: symlink",
		"list-metadata: json: cannot unmarshal array", "name.metadata: reference \"sles12/Bad\"", "noname.metadata: reference \"\"",
		"partly-metadata: reference \"Bad Name\"", "placeholder.metadata: sles12/p: no usable tag in [\"__TAG__\"]",
	}
	require.Len(t, problems, len(want), fmt.Sprint(problems))
	for i, err := range problems {
		assert.ErrorContains(t, err, want[i])
		assert.ErrorContains(t, err, "podfiles: tag files: ")
		assert.ErrorContains(t, err, dir)
	}
}

func TestTheFirstDirectoryWins(t *testing.T) {
	t.Parallel()
	var dirs []string
	for _, tag := range []string{"1.0.0", "2.0.0"} {
		dir := t.TempDir()
		put(t, dir, "x-metadata", `{"a/b": ["`+tag+`"], "only/`+tag[:1]+`": ["1"]}`)
		dirs = append(dirs, dir)
	}
	values, problems := TagFiles(t.Context(), dirs)
	assert.Empty(t, problems)
	assert.Equal(t, map[string]string{"a/b": "1.0.0", "only/1": "1", "only/2": "1"}, values)
}

func TestAnUnusableDirectoryIsAProblem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	put(t, dir, "x-metadata", `{"a/b": ["1"]}`)
	values, problems := TagFiles(t.Context(), []string{dir})
	assert.Empty(t, values)
	require.Len(t, problems, 1)
	require.ErrorContains(t, problems[0], "unsafe")
}

func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 2 * maxProblems {
		put(t, dir, fmt.Sprintf("%d-metadata", i), "broken")
	}
	_, problems := TagFiles(t.Context(), []string{dir})
	require.Len(t, problems, maxProblems)
	require.ErrorContains(t, problems[maxProblems-1], "more problems")
}

func TestReadingTagFilesEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	values, problems := TagFiles(ctx, []string{checkout(t, "native")})
	assert.Empty(t, values)
	require.Len(t, problems, 1)
	require.ErrorIs(t, problems[0], context.Canceled)
}

// choices are the tags of one image, and the chosen one.
var choices = map[string]string{
	"4.0.0 4.0.0-rev1 4.0.0-rev1-build1.3":     "4.0.0-rev1",
	"4.0.0-rev1-build1.3 4.0.0-rev1 4.0.0":     "4.0.0-rev1",
	"4.0.0-rev2 4.0.0-rev10 4.0.0-rev9":        "4.0.0-rev10",
	"4.0.0 4.0.0-rev1-build1.3":                "4.0.0-rev1-build1.3",
	"4.0.0-rev1-build2.9 4.0.0-rev1-build2.19": "4.0.0-rev1-build2.19",
	"latest 4.0.0":           "4.0.0",
	"latest stable":          "stable",
	"stable 4.0.0":           "4.0.0",
	"latest":                 "",
	"":                       "",
	"__TAG__ %%TAG%%":        "",
	"1.5.4-rev5-build":       "",
	"1.5.4-rev5-build 1.5.4": "1.5.4",
	"stable beta":            "stable",
}

func TestChoose(t *testing.T) {
	t.Parallel()
	for choice, want := range choices {
		got, err := choose(strings.Fields(choice))
		assert.Equal(t, want, got, choice)
		assert.Equal(t, want == "", err != nil, choice)
	}
}

func TestProblemsAreShort(t *testing.T) {
	t.Parallel()
	_, err := parseNative([]byte(`{"name":"a/b","tags":["`+strings.Repeat(`latest","`, 5000)+strings.Repeat("x", 5000)+`"]}`), "")
	require.ErrorContains(t, err, "no usable tag")
	assert.Less(t, len(err.Error()), 1000)
	_, err = parseNative([]byte(`{"name":"`+strings.Repeat("a", 5000)+`","tags":["1"]}`), "")
	require.ErrorContains(t, err, "longer than 255 bytes")
	assert.Less(t, len(err.Error()), 1000)
}

// FuzzTagFiles: for any files, a value is a valid tag, and its key a valid repository.
func FuzzTagFiles(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.metadata", "testdata/*/*-metadata"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		require.NotEmpty(f, files)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(data, "4.0.0-rev1\n")
			f.Add(data, "")
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, tag string) {
		native, _ := parseNative(data, tag)
		metadata, _ := parseMetadata(data)
		for _, found := range []map[string]string{native, metadata} {
			for repository, tag := range found {
				_, err := release.NormalizeRepository(repository)
				require.NoError(t, err)
				require.NotEqual(t, tags.ClassInvalid, tags.Classify(tag))
				require.False(t, release.IsPlaceholder(tag))
				require.NotEqual(t, "latest", tag)
			}
		}
	})
}

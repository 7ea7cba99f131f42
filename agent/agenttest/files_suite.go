// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// FilesUnderTest is a node.PodFiles and functions that change its directories as others do.
type FilesUnderTest struct {
	Files node.PodFiles
	// PutTemplate and PutPodManifest write a file as a package or an admin does;
	// nil data deletes it.
	PutTemplate, PutPodManifest func(t *testing.T, name string, data []byte)
	// PutUnsafe makes a pod manifest unsafe to read.
	PutUnsafe func(t *testing.T, name string)
}

// TestPodFiles asserts the behavior of a node.PodFiles.
func TestPodFiles(t *testing.T, open func(t *testing.T) FilesUnderTest) {
	for name, test := range asideCases() {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
	for name, test := range map[string]func(*testing.T, FilesUnderTest){
		"empty directories have no files":             filesEmpty,
		"files are listed by name, with their bytes":  filesList,
		"a new file is written once":                  filesCreate,
		"what was edited meanwhile is not replaced":   filesConflict,
		"what was edited meanwhile is not removed":    filesRemove,
		"rendered files wait, apart from kubelet's":   filesKeep,
		"a file that must not be read stops no other": filesUnsafe,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

type lister func(context.Context) ([]node.PodFile, error)

func listed(t *testing.T, list lister) map[string]string {
	t.Helper()
	files, err := list(t.Context())
	require.NoError(t, err)
	out := map[string]string{}
	for _, f := range files {
		require.NoError(t, f.Err, f.Name)
		out[f.Name] = string(f.Data)
	}
	return out
}

func filesEmpty(t *testing.T, s FilesUnderTest) {
	for _, list := range []lister{s.Files.Templates, s.Files.PodManifests, s.Files.Waiting} {
		assert.Empty(t, listed(t, list))
	}
}

func filesList(t *testing.T, s FilesUnderTest) {
	s.PutTemplate(t, "b.yaml", []byte("template b\r\n"))
	s.PutTemplate(t, "a.yaml", []byte("template a"))
	s.PutPodManifest(t, "a.yaml", []byte("pod a\n"))
	assert.Equal(t, map[string]string{"a.yaml": "template a", "b.yaml": "template b\r\n"}, listed(t, s.Files.Templates))
	assert.Equal(t, map[string]string{"a.yaml": "pod a\n"}, listed(t, s.Files.PodManifests))
	s.PutTemplate(t, "b.yaml", nil)
	assert.Equal(t, map[string]string{"a.yaml": "template a"}, listed(t, s.Files.Templates))
}

func filesCreate(t *testing.T, s FilesUnderTest) {
	was := node.PodFile{Name: "a.yaml"}
	require.NoError(t, s.Files.Write(t.Context(), was, []byte("one\n")))
	assert.Equal(t, map[string]string{"a.yaml": "one\n"}, listed(t, s.Files.PodManifests))
	require.ErrorIs(t, s.Files.Write(t.Context(), was, []byte("two\n")), release.ErrConflict, "it exists by now")
	assert.Equal(t, map[string]string{"a.yaml": "one\n"}, listed(t, s.Files.PodManifests))
}

// read returns a file as the agent has read it.
func read(t *testing.T, s FilesUnderTest, name string) node.PodFile {
	t.Helper()
	files, err := s.Files.PodManifests(t.Context())
	require.NoError(t, err)
	for _, f := range files {
		if f.Name == name {
			return f
		}
	}
	require.Fail(t, "no such file", name)
	return node.PodFile{}
}

func filesConflict(t *testing.T, s FilesUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	was := read(t, s, "a.yaml")
	s.PutPodManifest(t, "a.yaml", []byte("mine\n"))
	require.ErrorIs(t, s.Files.Write(t.Context(), was, []byte("two\n")), release.ErrConflict)
	assert.Equal(t, map[string]string{"a.yaml": "mine\n"}, listed(t, s.Files.PodManifests))
	require.NoError(t, s.Files.Write(t.Context(), read(t, s, "a.yaml"), []byte("two\n")))
	assert.Equal(t, map[string]string{"a.yaml": "two\n"}, listed(t, s.Files.PodManifests))
	was = read(t, s, "a.yaml")
	s.PutPodManifest(t, "a.yaml", nil)
	require.ErrorIs(t, s.Files.Write(t.Context(), was, []byte("three\n")), release.ErrConflict, "it was deleted")
	assert.Empty(t, listed(t, s.Files.PodManifests))
}

func filesRemove(t *testing.T, s FilesUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	was := read(t, s, "a.yaml")
	s.PutPodManifest(t, "a.yaml", []byte("mine\n"))
	require.ErrorIs(t, s.Files.Remove(t.Context(), was), release.ErrConflict)
	require.NoError(t, s.Files.Remove(t.Context(), read(t, s, "a.yaml")))
	assert.Empty(t, listed(t, s.Files.PodManifests))
}

func filesKeep(t *testing.T, s FilesUnderTest) {
	require.NoError(t, s.Files.Keep(t.Context(), "a.yaml", nil), "dropping nothing is no error")
	require.NoError(t, s.Files.Keep(t.Context(), "a.yaml", []byte("one\n")))
	require.NoError(t, s.Files.Keep(t.Context(), "a.yaml", []byte("two\n")))
	assert.Equal(t, map[string]string{"a.yaml": "two\n"}, listed(t, s.Files.Waiting))
	assert.Empty(t, listed(t, s.Files.PodManifests))
	require.NoError(t, s.Files.Keep(t.Context(), "a.yaml", nil))
	assert.Empty(t, listed(t, s.Files.Waiting))
}

func filesUnsafe(t *testing.T, s FilesUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	s.PutUnsafe(t, "b.yaml")
	bad := read(t, s, "b.yaml")
	require.Error(t, bad.Err)
	assert.Nil(t, bad.Data)
	assert.NoError(t, read(t, s, "a.yaml").Err)
	err := s.Files.Write(t.Context(), node.PodFile{Name: "b.yaml"}, []byte("two\n"))
	require.Error(t, err, "it is not replaced either")
}

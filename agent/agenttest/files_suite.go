// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"errors"
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

// asideCases returns the tests of SetAside and PutBack.
func asideCases() map[string]func(*testing.T, FilesUnderTest) {
	return map[string]func(*testing.T, FilesUnderTest){
		"putting back nothing is no error":                   filesNothingAside,
		"files set aside are out of sight, and come back":    filesAside,
		"what was edited meanwhile is not set aside":         filesAsideConflict,
		"what was not read is not set aside":                 filesAsideUnread,
		"what we wrote in its place is not replaced":         filesAsideWritten,
		"what a person wrote in its place is not replaced":   filesAsideEdited,
		"a file written anew can be set aside before a back": filesAsideAgain,
	}
}

func filesNothingAside(t *testing.T, s FilesUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	back, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Empty(t, back)
	assert.Equal(t, map[string]string{"a.yaml": "one\n"}, listed(t, s.Files.PodManifests))
}

func filesAside(t *testing.T, s FilesUnderTest) {
	all := map[string]string{"a-b": "three", "a": "two", "c.yaml": "one\n"}
	for name, data := range all {
		s.PutPodManifest(t, name, []byte(data))
	}
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s, "a-b")))
	assert.Equal(t, map[string]string{"a": "two", "c.yaml": "one\n"}, listed(t, s.Files.PodManifests))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s, "a")))
	assert.Equal(t, map[string]string{"c.yaml": "one\n"}, listed(t, s.Files.PodManifests))
	back, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "a-b"}, back, "sorted")
	assert.Equal(t, all, listed(t, s.Files.PodManifests))
	back, err = s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Empty(t, back)
	assert.Equal(t, all, listed(t, s.Files.PodManifests))
}

func filesAsideConflict(t *testing.T, s FilesUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	was := read(t, s, "a.yaml")
	s.PutPodManifest(t, "a.yaml", []byte("mine\n"))
	require.ErrorIs(t, s.Files.SetAside(t.Context(), was), release.ErrConflict)
	assert.Equal(t, map[string]string{"a.yaml": "mine\n"}, listed(t, s.Files.PodManifests))
	s.PutPodManifest(t, "a.yaml", nil)
	require.ErrorIs(t, s.Files.SetAside(t.Context(), was), release.ErrConflict, "it was deleted")
	back, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Empty(t, back)
	assert.Empty(t, listed(t, s.Files.PodManifests))
}

func filesAsideUnread(t *testing.T, s FilesUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	require.Error(t, s.Files.SetAside(t.Context(), node.PodFile{Name: "a.yaml"}))
	unsafe := node.PodFile{Name: "a.yaml", Data: []byte("one\n"), Err: errors.New("unsafe")}
	require.Error(t, s.Files.SetAside(t.Context(), unsafe))
	assert.Equal(t, map[string]string{"a.yaml": "one\n"}, listed(t, s.Files.PodManifests))
}

func filesAsideWritten(t *testing.T, s FilesUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s, "a.yaml")))
	require.NoError(t, s.Files.Write(t.Context(), node.PodFile{Name: "a.yaml"}, []byte("two\n")))
	for range 2 {
		back, err := s.Files.PutBack(t.Context())
		require.NoError(t, err)
		assert.Empty(t, back, "it was there already")
		assert.Equal(t, map[string]string{"a.yaml": "two\n"}, listed(t, s.Files.PodManifests))
	}
	require.NoError(t, s.Files.Remove(t.Context(), read(t, s, "a.yaml")))
	_, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Empty(t, listed(t, s.Files.PodManifests), "the old one is gone for good")
}

func filesAsideEdited(t *testing.T, s FilesUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	s.PutPodManifest(t, "b.yaml", []byte("two\n"))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s, "a.yaml")))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s, "b.yaml")))
	s.PutPodManifest(t, "a.yaml", []byte("mine\n"))
	require.ErrorIs(t, s.Files.Write(t.Context(), node.PodFile{Name: "a.yaml"}, []byte("ours\n")), release.ErrConflict)
	back, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"b.yaml"}, back)
	assert.Equal(t, map[string]string{"a.yaml": "mine\n", "b.yaml": "two\n"}, listed(t, s.Files.PodManifests))
}

func filesAsideAgain(t *testing.T, s FilesUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s, "a.yaml")))
	require.NoError(t, s.Files.Write(t.Context(), node.PodFile{Name: "a.yaml"}, []byte("two\n")))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s, "a.yaml")))
	assert.Empty(t, listed(t, s.Files.PodManifests))
	back, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"a.yaml"}, back)
	assert.Equal(t, map[string]string{"a.yaml": "two\n"}, listed(t, s.Files.PodManifests), "the newest")
}

// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
)

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

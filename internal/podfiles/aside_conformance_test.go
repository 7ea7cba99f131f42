// SPDX-License-Identifier: Apache-2.0

package podfiles

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
)

// asideFiles is what sets files aside and puts them back.
type asideFiles interface {
	agent.PodFiles
	SetAside(ctx context.Context, was agent.PodFile) error
	PutBack(ctx context.Context) (names []string, err error)
}

// asideUnderTest is such a one and what others do to its directories.
type asideUnderTest struct {
	agenttest.FilesUnderTest
	Files asideFiles
}

// testAside asserts what setting aside and putting back promise.
func testAside(t *testing.T, open func(t *testing.T) asideUnderTest) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, asideUnderTest){
		"putting back nothing is no error":                   filesNothingAside,
		"files set aside are out of sight, and come back":    filesAside,
		"what was edited meanwhile is not set aside":         filesAsideConflict,
		"what was not read is not set aside":                 filesAsideUnread,
		"what we wrote in its place is not replaced":         filesAsideWritten,
		"what a person wrote in its place is not replaced":   filesAsideEdited,
		"a file written anew can be set aside before a back": filesAsideAgain,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func filesNothingAside(t *testing.T, s asideUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	back, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Empty(t, back)
	assert.Equal(t, map[string]string{"a.yaml": "one\n"}, listed(t, s.Files))
}

func filesAside(t *testing.T, s asideUnderTest) {
	all := map[string]string{"a-b": "three", "a": "two", "c.yaml": "one\n"}
	for name, data := range all {
		s.PutPodManifest(t, name, []byte(data))
	}
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s.Files, "a-b")))
	assert.Equal(t, map[string]string{"a": "two", "c.yaml": "one\n"}, listed(t, s.Files))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s.Files, "a")))
	assert.Equal(t, map[string]string{"c.yaml": "one\n"}, listed(t, s.Files))
	back, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "a-b"}, back, "sorted")
	assert.Equal(t, all, listed(t, s.Files))
	back, err = s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Empty(t, back)
	assert.Equal(t, all, listed(t, s.Files))
}

func filesAsideConflict(t *testing.T, s asideUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	was := read(t, s.Files, "a.yaml")
	s.PutPodManifest(t, "a.yaml", []byte("mine\n"))
	require.ErrorIs(t, s.Files.SetAside(t.Context(), was), agent.ErrConflict)
	assert.Equal(t, map[string]string{"a.yaml": "mine\n"}, listed(t, s.Files))
	s.PutPodManifest(t, "a.yaml", nil)
	require.ErrorIs(t, s.Files.SetAside(t.Context(), was), agent.ErrConflict, "it was deleted")
	back, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Empty(t, back)
	assert.Empty(t, listed(t, s.Files))
}

func filesAsideUnread(t *testing.T, s asideUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	require.Error(t, s.Files.SetAside(t.Context(), agent.PodFile{Name: "a.yaml"}))
	require.Error(t, s.Files.SetAside(t.Context(), agent.PodFile{Name: "a.yaml", Data: []byte("one\n"), Err: errors.New("unsafe")}))
	assert.Equal(t, map[string]string{"a.yaml": "one\n"}, listed(t, s.Files))
}

func filesAsideWritten(t *testing.T, s asideUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s.Files, "a.yaml")))
	require.NoError(t, s.Files.Write(t.Context(), agent.PodFile{Name: "a.yaml"}, []byte("two\n")))
	for range 2 {
		back, err := s.Files.PutBack(t.Context())
		require.NoError(t, err)
		assert.Empty(t, back, "it was there already")
		assert.Equal(t, map[string]string{"a.yaml": "two\n"}, listed(t, s.Files))
	}
	require.NoError(t, s.Files.Remove(t.Context(), read(t, s.Files, "a.yaml")))
	_, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Empty(t, listed(t, s.Files), "the old one is gone for good")
}

func filesAsideEdited(t *testing.T, s asideUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	s.PutPodManifest(t, "b.yaml", []byte("two\n"))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s.Files, "a.yaml")))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s.Files, "b.yaml")))
	s.PutPodManifest(t, "a.yaml", []byte("mine\n"))
	require.ErrorIs(t, s.Files.Write(t.Context(), agent.PodFile{Name: "a.yaml"}, []byte("ours\n")), agent.ErrConflict)
	back, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"b.yaml"}, back)
	assert.Equal(t, map[string]string{"a.yaml": "mine\n", "b.yaml": "two\n"}, listed(t, s.Files))
}

func filesAsideAgain(t *testing.T, s asideUnderTest) {
	s.PutPodManifest(t, "a.yaml", []byte("one\n"))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s.Files, "a.yaml")))
	require.NoError(t, s.Files.Write(t.Context(), agent.PodFile{Name: "a.yaml"}, []byte("two\n")))
	require.NoError(t, s.Files.SetAside(t.Context(), read(t, s.Files, "a.yaml")))
	assert.Empty(t, listed(t, s.Files))
	back, err := s.Files.PutBack(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"a.yaml"}, back)
	assert.Equal(t, map[string]string{"a.yaml": "two\n"}, listed(t, s.Files), "the newest")
}

func listed(t require.TestingT, files agent.PodFiles) map[string]string {
	list, err := files.PodManifests(context.Background())
	require.NoError(t, err)
	out := map[string]string{}
	for _, f := range list {
		require.NoError(t, f.Err, f.Name)
		out[f.Name] = string(f.Data)
	}
	return out
}

// read gives a file as the agent has read it.
func read(t *testing.T, files agent.PodFiles, name string) agent.PodFile {
	t.Helper()
	list, err := files.PodManifests(t.Context())
	require.NoError(t, err)
	for _, f := range list {
		if f.Name == name {
			return f
		}
	}
	require.Fail(t, "no such file", name)
	return agent.PodFile{}
}

// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// imagesPruning are the tests of Prune, and of the mark that it relies on.
var imagesPruning = map[string]func(*testing.T, ImagesUnderTest){
	"what staging named is marked":                    imagesMarked,
	"a name that the runtime pulled is the runtime's": imagesPulledAnew,
	"prune frees what nothing needs":                  imagesPrune,
	"prune leaves what is not as it was seen":         imagesPruneSeen,
	"prune leaves what is pinned":                     imagesPrunePinned,
	"prune leaves the names of others":                imagesPruneForeign,
}

// staged returns the records that staging made for a release.
func (s ImagesUnderTest) staged(t *testing.T, r release.Release) []node.HeldImage {
	t.Helper()
	return s.held(t, func(h node.HeldImage) bool { return h.Staged && h.Digest == r.Digest })
}

func imagesMarked(t *testing.T, s ImagesUnderTest) {
	long, byDigest := s.Publish(t), s.Publish(t)
	byDigest.Long = ""
	for _, r := range []release.Release{long, byDigest} {
		require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
		staged := s.staged(t, r)
		require.Len(t, staged, 1)
		assert.Equal(t, r.StagedName(), staged[0].Name)
		assert.Equal(t, r.Repository, staged[0].Repository)
		assert.False(t, staged[0].Pin)
	}
}

func imagesPulledAnew(t *testing.T, s ImagesUnderTest) {
	if s.PullFloating == nil {
		return
	}
	before, after := s.Publish(t), s.Publish(t)
	name := func(r release.Release) release.Release { r.Tag = r.Long; return r }
	s.PullFloating(t, name(before))
	require.NoError(t, s.Images.Stage(t.Context(), before, node.StageOptions{}))
	require.NoError(t, s.Images.Stage(t.Context(), after, node.StageOptions{}))
	s.PullFloating(t, after)
	require.Len(t, s.staged(t, after), 1, "a pull of another name")
	s.PullFloating(t, name(after))
	for _, r := range []release.Release{before, after} {
		named := s.held(t, func(h node.HeldImage) bool { return h.Name == r.StagedName() })
		require.Len(t, named, 1)
		assert.False(t, named[0].Staged)
		assert.Empty(t, named[0].Repository)
	}
}

// pulls reports whether staging a release would fetch content.
func (s ImagesUnderTest) pulls(t *testing.T, r release.Release) bool {
	t.Helper()
	asked := false
	check := func(context.Context, policy.SpaceNeeded) error {
		asked = true
		return nil
	}
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{CheckSpace: check}))
	return asked
}

func imagesPrune(t *testing.T, s ImagesUnderTest) {
	old, next := s.Publish(t), s.Publish(t)
	for _, r := range []release.Release{old, next} {
		require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	}
	require.NoError(t, s.Images.Pins(t.Context(), []release.Pin{pinOf(next)}))
	gone := s.staged(t, old)
	require.NoError(t, s.Images.Prune(t.Context(), gone))
	assert.Empty(t, s.held(t, func(h node.HeldImage) bool { return h.Digest == old.Digest }))
	require.NoError(t, s.Images.Prune(t.Context(), gone), "what is gone already")
	require.NoError(t, s.Images.Prune(t.Context(), nil))
	assert.Len(t, s.staged(t, next), 1)
	assert.False(t, s.pulls(t, next))
	assert.True(t, s.pulls(t, old), "its content is gone, too")
}

func imagesPruneSeen(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	seen := s.staged(t, r)
	require.Len(t, seen, 1)
	seen[0].Digest = digest.FromString("what it named before")
	require.NoError(t, s.Images.Prune(t.Context(), seen))
	assert.Len(t, s.staged(t, r), 1)
}

func imagesPrunePinned(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	require.NoError(t, s.Images.Prune(t.Context(), s.staged(t, r)))
	left := s.held(t, func(h node.HeldImage) bool { return h.Digest == r.Digest })
	require.Len(t, left, 1)
	assert.True(t, left[0].Pin && left[0].Complete)
	assert.False(t, s.pulls(t, r))
	assert.Len(t, s.staged(t, r), 1, "named anew")
}

func imagesPruneForeign(t *testing.T, s ImagesUnderTest) {
	if s.PullFloating == nil {
		return
	}
	r := s.Publish(t)
	s.PullFloating(t, r)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	require.NoError(t, s.Images.Pins(t.Context(), nil))
	require.NoError(t, s.Images.Prune(t.Context(), s.staged(t, r)))
	floating := s.held(t, func(h node.HeldImage) bool { return h.Name == r.Repository+":"+r.Tag })
	require.Len(t, floating, 1)
	assert.Equal(t, r.Digest, floating[0].Digest)
	assert.Equal(t, r.Config, floating[0].Config, "its content stays")
	assert.False(t, s.pulls(t, r))
}

// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// imagesRestoring are the tests of Restore.
var imagesRestoring = map[string]func(*testing.T, ImagesUnderTest){
	"a tag that a login page has broken is restored": imagesRestore,
	"what is not complete is not returned to":        imagesRestoreLost,
}

// broken returns the record of a tag that is not an image.
func (s ImagesUnderTest) broken(t *testing.T, r release.Release) node.HeldImage {
	t.Helper()
	found := s.held(t, func(h node.HeldImage) bool { return h.Name == r.Repository+":"+r.Tag })
	require.Len(t, found, 1)
	return found[0]
}

func imagesRestore(t *testing.T, s ImagesUnderTest) {
	if s.PullPage == nil {
		return
	}
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	s.PullFloating(t, r)
	good := s.broken(t, r)
	assert.Empty(t, good.NotImage)
	require.ErrorIs(t, s.Images.Restore(t.Context(), good, r.Digest), release.ErrConflict, "it names an image")

	s.PullPage(t, r)
	page := s.broken(t, r)
	assert.Equal(t, "text/html", page.NotImage)
	assert.NotEqual(t, r.Digest, page.Digest)
	assert.Equal(t, []release.Pin{pinOf(r)}, s.pins(t), "the pin keeps the image")
	require.ErrorIs(t, s.Images.Restore(t.Context(), good, r.Digest), release.ErrConflict)
	require.NoError(t, s.Images.Restore(t.Context(), page, r.Digest))
	assert.Equal(t, good, s.broken(t, r))
	require.ErrorIs(t, s.Images.Restore(t.Context(), page, r.Digest), release.ErrConflict, "again")
}

func imagesRestoreLost(t *testing.T, s ImagesUnderTest) {
	if s.PullPage == nil || s.Lose == nil {
		return
	}
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	s.PullFloating(t, r)
	s.PullPage(t, r)
	page := s.broken(t, r)
	require.ErrorIs(t, s.Images.Restore(t.Context(), page, digest.FromString("unknown")), release.ErrNotFound)
	s.Lose(t, r)
	require.ErrorIs(t, s.Images.Restore(t.Context(), page, r.Digest), release.ErrNotFound)
	assert.Equal(t, page, s.broken(t, r))
}

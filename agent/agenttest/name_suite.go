// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// imagesNaming are the tests of Name.
var imagesNaming = map[string]func(*testing.T, ImagesUnderTest){
	"a digest that is held gets its name":      imagesName,
	"what runs is named without a pull":        imagesNamePulled,
	"what is not complete gets no name":        imagesNameLost,
	"a digest is named for another repository": imagesNameElsewhere,
}

// byDigest returns the records named repository@digest.
func (s ImagesUnderTest) byDigest(t *testing.T, p release.Pin) []node.HeldImage {
	t.Helper()
	name := p.Repository + "@" + p.Digest.String()
	return s.held(t, func(h node.HeldImage) bool { return h.Name == name })
}

func imagesName(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	require.ErrorIs(t, s.Images.Name(t.Context(), pinOf(r)), release.ErrNotFound)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	if s.Vanish != nil {
		s.Vanish(t, r)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { assert.NoError(t, s.Images.Name(t.Context(), pinOf(r))) })
	}
	all.Wait()
	require.NoError(t, s.Images.Name(t.Context(), pinOf(r)), "again")
	named := s.byDigest(t, pinOf(r))
	require.Len(t, named, 1)
	assert.Equal(t, node.HeldImage{
		Name: named[0].Name, Digest: r.Digest, Config: r.Config, Origin: r.Origin, Staged: true, Repository: r.Repository,
	}, named[0])
	assert.Equal(t, []release.Pin{pinOf(r)}, s.pins(t), "it is no pin")

	require.NoError(t, s.Images.Prune(t.Context(), named))
	assert.Empty(t, s.byDigest(t, pinOf(r)))
	assert.Len(t, s.staged(t, r), 1, "the name that staging gave")
}

func imagesNamePulled(t *testing.T, s ImagesUnderTest) {
	if s.PullFloating == nil {
		return
	}
	r := s.Publish(t)
	s.PullFloating(t, r)
	require.NoError(t, s.Images.Name(t.Context(), pinOf(r)))
	assert.Len(t, s.byDigest(t, pinOf(r)), 1)
	assert.Empty(t, s.pins(t))
}

func imagesNameLost(t *testing.T, s ImagesUnderTest) {
	if s.Lose == nil {
		return
	}
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	s.Lose(t, r)
	require.ErrorIs(t, s.Images.Name(t.Context(), pinOf(r)), release.ErrNotFound)
	assert.Empty(t, s.byDigest(t, pinOf(r)))
	unknown := release.Pin{Repository: r.Repository, Digest: digest.FromString("unknown")}
	require.ErrorIs(t, s.Images.Name(t.Context(), unknown), release.ErrNotFound)
}

func imagesNameElsewhere(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	other := release.Pin{Repository: r.Repository + "/copy", Digest: r.Digest}
	require.NoError(t, s.Images.Name(t.Context(), other))
	named := s.byDigest(t, other)
	require.Len(t, named, 1)
	assert.Equal(t, other.Repository, named[0].Repository)
	assert.Empty(t, s.byDigest(t, pinOf(r)))
}

// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"maps"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// ImagesUnderTest is a node.Images and functions that change the world behind it. A function is nil if the world cannot
// do it.
type ImagesUnderTest struct {
	Images node.Images
	// Publish publishes a new release that can be staged, with intermediate and long tag; Config must be set.
	Publish func(t *testing.T) release.Release
	// PublishForeign publishes a release for another platform.
	PublishForeign func(t *testing.T) release.Release
	// Vanish deletes the release's manifest from the registry.
	Vanish func(t *testing.T, r release.Release)
	// PullFloating lets the runtime pull the release's floating tag, as kubelet
	// does.
	PullFloating func(t *testing.T, r release.Release)
	// PullPage is like PullFloating while a login page answers instead of the registry.
	PullPage func(t *testing.T, r release.Release)
	// Lose deletes content of the release from the node.
	Lose func(t *testing.T, r release.Release)
}

// TestImages asserts the behavior of a node.Images.
func TestImages(t *testing.T, open func(t *testing.T) ImagesUnderTest) {
	tests := map[string]func(*testing.T, ImagesUnderTest){
		"staged is pinned, complete and named":               imagesStage,
		"staged again needs no registry":                     imagesStageAgain,
		"staged by digest where there is no long tag":        imagesStageByDigest,
		"staging leaves the floating tag alone":              imagesFloating,
		"what is not there cannot be staged":                 imagesVanished,
		"what is not for this platform cannot be staged":     imagesForeign,
		"content that was lost is staged anew":               imagesLost,
		"room is asked once, and a no leaves nothing":        imagesRoom,
		"pins are those that are wanted":                     imagesPins,
		"a pin of content that is not there is left out":     imagesPinNothing,
		"the same digest is pinned for each repository":      imagesPinTwice,
		"a context that ended stages nothing":                imagesEnded,
		"what runs can be pinned without having been staged": imagesPinPulled,
	}
	maps.Copy(tests, imagesPruning)
	maps.Copy(tests, imagesNaming)
	maps.Copy(tests, imagesRestoring)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func (s ImagesUnderTest) held(t *testing.T, want func(node.HeldImage) bool) []node.HeldImage {
	t.Helper()
	all, err := s.Images.Held(t.Context())
	require.NoError(t, err)
	var out []node.HeldImage
	for _, h := range all {
		if want(h) {
			out = append(out, h)
		}
	}
	return out
}

func (s ImagesUnderTest) pins(t *testing.T) []release.Pin {
	t.Helper()
	var out []release.Pin
	for _, h := range s.held(t, func(h node.HeldImage) bool { return h.Pin }) {
		out = append(out, release.Pin{Repository: h.Repository, Digest: h.Digest})
	}
	return out
}

func pinOf(r release.Release) release.Pin {
	return release.Pin{Repository: r.Repository, Digest: r.Digest}
}

func imagesStage(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	var last status.Progress
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{Progress: func(p status.Progress) { last = p }}))
	assert.Equal(t, "done", last.Phase)
	pins := s.held(t, func(h node.HeldImage) bool { return h.Pin })
	require.Len(t, pins, 1)
	assert.Equal(t, []release.Pin{pinOf(r)}, s.pins(t))
	assert.True(t, pins[0].Complete)
	assert.Equal(t, r.Config, pins[0].Config)
	assert.Regexp(t, `^application/vnd\..+\+json$`, pins[0].MediaType)
	assert.Positive(t, pins[0].Size, "of the manifest")
	named := s.held(t, func(h node.HeldImage) bool { return h.Name == r.StagedName() })
	require.Len(t, named, 1)
	assert.False(t, named[0].Pin)
	assert.Equal(t, r.Digest, named[0].Digest)
	assert.Equal(t, r.Config, named[0].Config)
}

func imagesStageAgain(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	if s.Vanish != nil {
		s.Vanish(t, r)
	}
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	assert.Equal(t, []release.Pin{pinOf(r)}, s.pins(t))
}

func imagesStageByDigest(t *testing.T, s ImagesUnderTest) {
	without, followed := s.Publish(t), s.Publish(t)
	without.Long = ""
	followed.Tag = followed.Long
	for _, r := range []release.Release{without, followed} {
		require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
		name := r.Repository + "@" + r.Digest.String()
		assert.Len(t, s.held(t, func(h node.HeldImage) bool { return h.Name == name }), 1)
	}
}

func imagesFloating(t *testing.T, s ImagesUnderTest) {
	if s.PullFloating == nil {
		return
	}
	old := s.Publish(t)
	s.PullFloating(t, old)
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	floating := s.held(t, func(h node.HeldImage) bool { return h.Name == old.Repository+":"+old.Tag })
	require.Len(t, floating, 1)
	assert.Equal(t, old.Digest, floating[0].Digest, "an unapproved image could start")
	long := s.Publish(t)
	long.Tag = long.Long // as if the pod manifest named the long tag
	require.NoError(t, s.Images.Stage(t.Context(), long, node.StageOptions{}))
	assert.Empty(t, s.held(t, func(h node.HeldImage) bool { return h.Name == long.Repository+":"+long.Long }))
}

func imagesVanished(t *testing.T, s ImagesUnderTest) {
	if s.Vanish == nil {
		return
	}
	r := s.Publish(t)
	s.Vanish(t, r)
	require.ErrorIs(t, s.Images.Stage(t.Context(), r, node.StageOptions{}), release.ErrNotFound)
	assert.Empty(t, s.held(t, func(h node.HeldImage) bool { return h.Digest == r.Digest }))
}

func imagesForeign(t *testing.T, s ImagesUnderTest) {
	if s.PublishForeign == nil {
		return
	}
	r := s.PublishForeign(t)
	require.ErrorIs(t, s.Images.Stage(t.Context(), r, node.StageOptions{}), release.ErrPlatform)
	assert.Empty(t, s.held(t, func(h node.HeldImage) bool { return h.Digest == r.Digest }))
}

func imagesLost(t *testing.T, s ImagesUnderTest) {
	if s.Lose == nil {
		return
	}
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	s.Lose(t, r)
	complete := func(h node.HeldImage) bool { return h.Pin && h.Complete }
	assert.Empty(t, s.held(t, complete), "a pin alone is not complete")
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	assert.Len(t, s.held(t, complete), 1)
}

func imagesRoom(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	var needs []policy.SpaceNeeded
	answer := release.ErrHeld
	terms := node.StageOptions{CheckSpace: func(_ context.Context, n policy.SpaceNeeded) error {
		needs = append(needs, n)
		return answer
	}}
	require.ErrorIs(t, s.Images.Stage(t.Context(), r, terms), release.ErrHeld)
	assert.Empty(t, s.held(t, func(h node.HeldImage) bool { return h.Digest == r.Digest }))
	answer = nil
	require.NoError(t, s.Images.Stage(t.Context(), r, terms))
	require.Len(t, needs, 2)
	assert.Equal(t, needs[0], needs[1])
	assert.GreaterOrEqual(t, needs[0].Unpacked, needs[0].Compressed)
	require.NoError(t, s.Images.Stage(t.Context(), r, terms))
	assert.Len(t, needs, 2, "nothing is missing")
}

func imagesPins(t *testing.T, s ImagesUnderTest) {
	a, b, c := s.Publish(t), s.Publish(t), s.Publish(t)
	for _, r := range []release.Release{a, b, c} {
		require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	}
	require.NoError(t, s.Images.Pins(t.Context(), []release.Pin{pinOf(a), pinOf(c)}))
	assert.ElementsMatch(t, []release.Pin{pinOf(a), pinOf(c)}, s.pins(t))
	require.NoError(t, s.Images.Pins(t.Context(), []release.Pin{pinOf(a), pinOf(c)}), "again")
	require.NoError(t, s.Images.Pins(t.Context(), nil))
	assert.Empty(t, s.pins(t))
}

func imagesPinNothing(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	want := []release.Pin{{Repository: r.Repository, Digest: digest.FromString("unknown")}, pinOf(r)}
	require.NoError(t, s.Images.Pins(t.Context(), want))
	assert.Empty(t, s.pins(t), "it has to be staged first")
}

func imagesPinTwice(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, node.StageOptions{}))
	other := release.Pin{Repository: r.Repository + "/copy", Digest: r.Digest}
	require.NoError(t, s.Images.Pins(t.Context(), []release.Pin{pinOf(r), other}))
	assert.ElementsMatch(t, []release.Pin{pinOf(r), other}, s.pins(t))
	require.NoError(t, s.Images.Pins(t.Context(), []release.Pin{other}))
	assert.Equal(t, []release.Pin{other}, s.pins(t))
}

func imagesEnded(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	require.Error(t, s.Images.Stage(ended(t), r, node.StageOptions{}))
	assert.Empty(t, s.pins(t))
}

func imagesPinPulled(t *testing.T, s ImagesUnderTest) {
	if s.PullFloating == nil {
		return
	}
	r := s.Publish(t)
	s.PullFloating(t, r)
	assert.Empty(t, s.pins(t))
	require.NoError(t, s.Images.Pins(t.Context(), []release.Pin{pinOf(r)}))
	pins := s.held(t, func(h node.HeldImage) bool { return h.Pin })
	require.Len(t, pins, 1)
	assert.True(t, pins[0].Complete)
}

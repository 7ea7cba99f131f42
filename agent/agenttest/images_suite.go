// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"maps"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
)

// ImagesUnderTest is an agent.Images and what a test does to the world behind
// it. A function may be nil where the world cannot do it.
type ImagesUnderTest struct {
	Images agent.Images
	// Publish makes a new release that can be staged, with intermediate and long
	// tag; Config must be set.
	Publish func(t *testing.T) agent.Release
	// PublishForeign makes one for another platform.
	PublishForeign func(t *testing.T) agent.Release
	// Vanish deletes what the release names from the registry.
	Vanish func(t *testing.T, r agent.Release)
	// PullFloating lets the runtime pull the release's floating tag, as kubelet
	// does.
	PullFloating func(t *testing.T, r agent.Release)
	// Lose takes content of the release away from the node.
	Lose func(t *testing.T, r agent.Release)
}

// TestImages asserts what an agent.Images promises.
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
		"a pin of what nobody holds is left out":             imagesPinNothing,
		"the same digest is pinned for each repository":      imagesPinTwice,
		"a context that ended stages nothing":                imagesEnded,
		"what runs can be pinned without having been staged": imagesPinPulled,
	}
	maps.Copy(tests, imagesPruning)
	maps.Copy(tests, imagesNaming)
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

func (s ImagesUnderTest) held(t *testing.T, want func(agent.HeldImage) bool) []agent.HeldImage {
	t.Helper()
	all, err := s.Images.Held(t.Context())
	require.NoError(t, err)
	var out []agent.HeldImage
	for _, h := range all {
		if want(h) {
			out = append(out, h)
		}
	}
	return out
}

func (s ImagesUnderTest) pins(t *testing.T) []agent.Pin {
	t.Helper()
	var out []agent.Pin
	for _, h := range s.held(t, func(h agent.HeldImage) bool { return h.Pin }) {
		out = append(out, agent.Pin{Repository: h.Repository, Digest: h.Digest})
	}
	return out
}

func pinOf(r agent.Release) agent.Pin { return agent.Pin{Repository: r.Repository, Digest: r.Digest} }

func imagesStage(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	var last agent.Progress
	require.NoError(t, s.Images.Stage(t.Context(), r, agent.Terms{Progress: func(p agent.Progress) { last = p }}))
	assert.Equal(t, "done", last.Phase)
	pins := s.held(t, func(h agent.HeldImage) bool { return h.Pin })
	require.Len(t, pins, 1)
	assert.Equal(t, []agent.Pin{pinOf(r)}, s.pins(t))
	assert.True(t, pins[0].Complete)
	assert.Equal(t, r.Config, pins[0].Config)
	named := s.held(t, func(h agent.HeldImage) bool { return h.Name == r.StagedName() })
	require.Len(t, named, 1)
	assert.False(t, named[0].Pin)
	assert.Equal(t, r.Digest, named[0].Digest)
	assert.Equal(t, r.Config, named[0].Config)
}

func imagesStageAgain(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, agent.Terms{}))
	if s.Vanish != nil {
		s.Vanish(t, r)
	}
	require.NoError(t, s.Images.Stage(t.Context(), r, agent.Terms{}))
	assert.Equal(t, []agent.Pin{pinOf(r)}, s.pins(t))
}

func imagesStageByDigest(t *testing.T, s ImagesUnderTest) {
	without, followed := s.Publish(t), s.Publish(t)
	without.Long = ""
	followed.Tag = followed.Long
	for _, r := range []agent.Release{without, followed} {
		require.NoError(t, s.Images.Stage(t.Context(), r, agent.Terms{}))
		name := r.Repository + "@" + r.Digest.String()
		assert.Len(t, s.held(t, func(h agent.HeldImage) bool { return h.Name == name }), 1)
	}
}

func imagesFloating(t *testing.T, s ImagesUnderTest) {
	if s.PullFloating == nil {
		return
	}
	old := s.Publish(t)
	s.PullFloating(t, old)
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, agent.Terms{}))
	floating := s.held(t, func(h agent.HeldImage) bool { return h.Name == old.Repository+":"+old.Tag })
	require.Len(t, floating, 1)
	assert.Equal(t, old.Digest, floating[0].Digest, "an unapproved image could start")
	long := s.Publish(t)
	long.Tag = long.Long // followed as it stands
	require.NoError(t, s.Images.Stage(t.Context(), long, agent.Terms{}))
	assert.Empty(t, s.held(t, func(h agent.HeldImage) bool { return h.Name == long.Repository+":"+long.Long }))
}

func imagesVanished(t *testing.T, s ImagesUnderTest) {
	if s.Vanish == nil {
		return
	}
	r := s.Publish(t)
	s.Vanish(t, r)
	require.ErrorIs(t, s.Images.Stage(t.Context(), r, agent.Terms{}), agent.ErrNotFound)
	assert.Empty(t, s.held(t, func(h agent.HeldImage) bool { return h.Digest == r.Digest }))
}

func imagesForeign(t *testing.T, s ImagesUnderTest) {
	if s.PublishForeign == nil {
		return
	}
	r := s.PublishForeign(t)
	require.ErrorIs(t, s.Images.Stage(t.Context(), r, agent.Terms{}), agent.ErrPlatform)
	assert.Empty(t, s.held(t, func(h agent.HeldImage) bool { return h.Digest == r.Digest }))
}

func imagesLost(t *testing.T, s ImagesUnderTest) {
	if s.Lose == nil {
		return
	}
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, agent.Terms{}))
	s.Lose(t, r)
	complete := func(h agent.HeldImage) bool { return h.Pin && h.Complete }
	assert.Empty(t, s.held(t, complete), "a pin alone is not complete")
	require.NoError(t, s.Images.Stage(t.Context(), r, agent.Terms{}))
	assert.Len(t, s.held(t, complete), 1)
}

func imagesRoom(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	var needs []agent.Need
	answer := agent.ErrHeld
	terms := agent.Terms{Room: func(_ context.Context, n agent.Need) error {
		needs = append(needs, n)
		return answer
	}}
	require.ErrorIs(t, s.Images.Stage(t.Context(), r, terms), agent.ErrHeld)
	assert.Empty(t, s.held(t, func(h agent.HeldImage) bool { return h.Digest == r.Digest }))
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
	for _, r := range []agent.Release{a, b, c} {
		require.NoError(t, s.Images.Stage(t.Context(), r, agent.Terms{}))
	}
	require.NoError(t, s.Images.Pins(t.Context(), []agent.Pin{pinOf(a), pinOf(c)}))
	assert.ElementsMatch(t, []agent.Pin{pinOf(a), pinOf(c)}, s.pins(t))
	require.NoError(t, s.Images.Pins(t.Context(), []agent.Pin{pinOf(a), pinOf(c)}), "again")
	require.NoError(t, s.Images.Pins(t.Context(), nil))
	assert.Empty(t, s.pins(t))
}

func imagesPinNothing(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	want := []agent.Pin{{Repository: r.Repository, Digest: digest.FromString("nobody")}, pinOf(r)}
	require.NoError(t, s.Images.Pins(t.Context(), want))
	assert.Empty(t, s.pins(t), "it has to be staged first")
}

func imagesPinTwice(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	require.NoError(t, s.Images.Stage(t.Context(), r, agent.Terms{}))
	other := agent.Pin{Repository: r.Repository + "/copy", Digest: r.Digest}
	require.NoError(t, s.Images.Pins(t.Context(), []agent.Pin{pinOf(r), other}))
	assert.ElementsMatch(t, []agent.Pin{pinOf(r), other}, s.pins(t))
	require.NoError(t, s.Images.Pins(t.Context(), []agent.Pin{other}))
	assert.Equal(t, []agent.Pin{other}, s.pins(t))
}

func imagesEnded(t *testing.T, s ImagesUnderTest) {
	r := s.Publish(t)
	require.Error(t, s.Images.Stage(ended(t), r, agent.Terms{}))
	assert.Empty(t, s.pins(t))
}

func imagesPinPulled(t *testing.T, s ImagesUnderTest) {
	if s.PullFloating == nil {
		return
	}
	r := s.Publish(t)
	s.PullFloating(t, r)
	assert.Empty(t, s.pins(t))
	require.NoError(t, s.Images.Pins(t.Context(), []agent.Pin{pinOf(r)}))
	pins := s.held(t, func(h agent.HeldImage) bool { return h.Pin })
	require.Len(t, pins, 1)
	assert.True(t, pins[0].Complete)
}

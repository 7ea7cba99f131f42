// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"maps"
	"sync"
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

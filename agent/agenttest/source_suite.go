// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"errors"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
)

// SourceUnderTest is a source.Source and functions that change the world behind it. A function is nil if the world
// cannot do it.
type SourceUnderTest struct {
	Source     source.Source
	Repository string // nothing has been published in it
	// Publish publishes a new image for the node's platform under the tags, and returns the result expected from
	// Describe.
	Publish func(t *testing.T, tags ...string) (digest.Digest, release.Build)
	// PublishForeign publishes an image for another platform.
	PublishForeign func(t *testing.T, tags ...string) digest.Digest
	// Retract deletes a tag.
	Retract func(t *testing.T, tag string)
	// Down makes the source unreachable from now on.
	Down func(t *testing.T)
}

// TestSource asserts the behavior of a source.Source.
func TestSource(t *testing.T, open func(t *testing.T) SourceUnderTest) {
	for name, test := range map[string]func(*testing.T, SourceUnderTest){
		"a tag names what was published under it":        sourceResolves,
		"a tag that moved names the new digest":          sourceMoves,
		"a missing tag is not found":                     sourceMisses,
		"tags are listed, foreign ones too":              sourceLists,
		"a digest is described, without a tag":           sourceDescribes,
		"another platform's image is told":               sourceForeign,
		"a retracted tag is not found, its digest stays": sourceRetracts,
		"who does not answer is named":                   sourceDown,
		"a context that ended is not waited for":         sourceEnds,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func (s SourceUnderTest) resolve(t *testing.T, tag string) (release.Resolved, error) {
	t.Helper()
	return s.Source.Resolve(t.Context(), release.Reference{Repository: s.Repository, Tag: tag})
}

func sourceResolves(t *testing.T, s SourceUnderTest) {
	d, _ := s.Publish(t, "1.0.0", "1.0.0-rev1", "1.0.0-rev1-build1.1")
	for _, tag := range []string{"1.0.0", "1.0.0-rev1", "1.0.0-rev1-build1.1"} {
		r, err := s.resolve(t, tag)
		require.NoError(t, err)
		assert.Equal(t, d, r.Digest)
		assert.NotEmpty(t, r.Host)
	}
}

func sourceMoves(t *testing.T, s SourceUnderTest) {
	s.Publish(t, "1.0.0-rev1")
	_, err := s.resolve(t, "1.0.0-rev1")
	require.NoError(t, err)
	d, _ := s.Publish(t, "1.0.0-rev1")
	r, err := s.resolve(t, "1.0.0-rev1")
	require.NoError(t, err)
	assert.Equal(t, d, r.Digest)
}

func sourceMisses(t *testing.T, s SourceUnderTest) {
	for _, published := range []bool{false, true} {
		if published {
			s.Publish(t, "1.0.0")
		}
		_, err := s.resolve(t, "9.9.9")
		require.ErrorIs(t, err, release.ErrNotFound, "published: %v", published)
		assert.Contains(t, err.Error(), s.Repository)
		_, err = s.Source.Describe(t.Context(), s.Repository, digest.FromString("unknown"))
		require.ErrorIs(t, err, release.ErrNotFound)
	}
}

func sourceLists(t *testing.T, s SourceUnderTest) {
	_, err := s.Source.Tags(t.Context(), s.Repository)
	require.ErrorIs(t, err, release.ErrNotFound, "a repository that is not there")
	s.Publish(t, "1.0.0", "latest")
	s.Publish(t, "1.0.0", "1.0.1")
	got, err := s.Source.Tags(t.Context(), s.Repository)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"1.0.0", "1.0.1", "latest"}, got)
}

func sourceDescribes(t *testing.T, s SourceUnderTest) {
	first, want := s.Publish(t, "1.0.0")
	s.Publish(t, "1.0.0")
	got, err := s.Source.Describe(t.Context(), s.Repository, first)
	require.NoError(t, err)
	assert.Equal(t, want.Config, got.Config)
	assert.Equal(t, want.Size, got.Size)
	assert.True(t, want.Created.Equal(got.Created), "created: want %s, got %s", want.Created, got.Created)
	assert.Equal(t, want.Version, got.Version)
	assert.Equal(t, want.Origin, got.Origin)
}

func sourceForeign(t *testing.T, s SourceUnderTest) {
	if s.PublishForeign == nil {
		return
	}
	d := s.PublishForeign(t, "1.0.0")
	r, err := s.resolve(t, "1.0.0")
	require.NoError(t, err)
	assert.Equal(t, d, r.Digest)
	_, err = s.Source.Describe(t.Context(), s.Repository, d)
	require.ErrorIs(t, err, release.ErrPlatform)
	assert.NotErrorIs(t, err, release.ErrNotFound)
}

func sourceRetracts(t *testing.T, s SourceUnderTest) {
	if s.Retract == nil {
		return
	}
	d, _ := s.Publish(t, "1.0.0", "1.0.0-rev1")
	s.Retract(t, "1.0.0-rev1")
	_, err := s.resolve(t, "1.0.0-rev1")
	require.ErrorIs(t, err, release.ErrNotFound)
	_, err = s.Source.Describe(t.Context(), s.Repository, d)
	require.NoError(t, err)
}

func sourceDown(t *testing.T, s SourceUnderTest) {
	if s.Down == nil {
		return
	}
	d, _ := s.Publish(t, "1.0.0")
	s.Down(t)
	_, resolve := s.resolve(t, "1.0.0")
	_, list := s.Source.Tags(t.Context(), s.Repository)
	_, describe := s.Source.Describe(t.Context(), s.Repository, d)
	for what, err := range map[string]error{"resolve": resolve, "list": list, "describe": describe} {
		require.Error(t, err, what)
		assert.NotErrorIs(t, err, release.ErrNotFound, "%s: away is not the same as gone", what)
		se, ok := errors.AsType[*release.SourceError](err)
		require.True(t, ok, "%s: %v: says neither repository nor host", what, err)
		assert.Equal(t, s.Repository, se.Repository)
	}
}

func sourceEnds(t *testing.T, s SourceUnderTest) {
	s.Publish(t, "1.0.0")
	_, err := s.Source.Resolve(ended(t), release.Reference{Repository: s.Repository, Tag: "1.0.0"})
	require.Error(t, err)
	assert.NotErrorIs(t, err, release.ErrNotFound)
}

// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

func partsOf(t tags.Tag) parts {
	return parts{form: t.Form(), app: t.App(), rev: t.Rev(), build: t.Build(), hasV: t.HasV()}
}

func TestParseAcceptsGoodTags(t *testing.T) {
	t.Parallel()
	for text, want := range goodTags {
		tag, err := tags.Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, partsOf(tag), text)
		assert.Equal(t, text, tag.String())
		assert.Equal(t, tags.Class(want.form.String()), tags.Classify(text), text)
		assert.False(t, tag.IsZero())
	}
}

func TestParseReturnsTheReasonOfMalformedTags(t *testing.T) {
	t.Parallel()
	for text, reason := range malformedTags {
		tag, err := tags.Parse(text)
		require.ErrorIs(t, err, tags.ErrMalformed, text)
		assert.Equal(t, reason, tags.Reason(err), text)
		require.EqualError(t, err, fmt.Sprintf("tags: %q: malformed: %s", text, reason))
		require.NotErrorIs(t, err, tags.ErrUnrecognized)
		assert.True(t, tag.IsZero())
		assert.Equal(t, tags.ClassMalformed, tags.Classify(text))
	}
}

func TestSUSESchemeRejectsOtherTags(t *testing.T) {
	t.Parallel()
	for _, text := range unrecognizedTags {
		tag, err := tags.SUSEOnly().Parse(text)
		require.ErrorIs(t, err, tags.ErrUnrecognized, text)
		require.NotErrorIs(t, err, tags.ErrInvalid)
		assert.True(t, tag.IsZero())
		assert.Contains(t, []tags.Class{tags.ClassUnrecognized, tags.ClassSingle, tags.ClassShort}, tags.Classify(text))
	}
}

func TestParseRejectsInvalidTags(t *testing.T) {
	t.Parallel()
	for _, text := range invalidTags {
		tag, err := tags.Parse(text)
		require.ErrorIs(t, err, tags.ErrInvalid, text)
		require.NotErrorIs(t, err, tags.ErrUnrecognized)
		assert.True(t, tag.IsZero())
		assert.Equal(t, tags.ClassInvalid, tags.Classify(text))
	}
}

func TestParseEnforcesTheOCILength(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("1", 128)
	tag, err := tags.Parse(longest)
	require.NoError(t, err)
	assert.Equal(t, longest, tag.App())

	_, err = tags.Parse(longest + "1")
	assert.ErrorIs(t, err, tags.ErrInvalid)
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	messages := map[string]string{
		"1.5.4-rev5-build": `tags: "1.5.4-rev5-build": malformed: empty build`,
		"latest":           `tags: "latest": unrecognized: no version in it`,
		"":                 `tags: "": not an OCI tag: empty`,
		"a/b":              `tags: "a/b": not an OCI tag: "/" at byte 1`,
		"1.é":              `tags: "1.é": not an OCI tag: "\xc3" at byte 2`,
	}
	for text, message := range messages {
		_, err := tags.Parse(text)
		assert.EqualError(t, err, message)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	_, err := tags.Parse(strings.Repeat("x", 1<<20))
	require.ErrorIs(t, err, tags.ErrInvalid)
	assert.Less(t, len(err.Error()), 200)
	assert.Contains(t, err.Error(), "1048576 bytes, at most 128")
}

func TestShorterForms(t *testing.T) {
	t.Parallel()
	long := must(t, "v1.18.6-rev2-build3.8")
	intermediate, ok := long.Intermediate()
	assert.True(t, ok)
	assert.Equal(t, must(t, "v1.18.6-rev2"), intermediate)
	assert.Equal(t, must(t, "v1.18.6"), long.Short())

	again, ok := intermediate.Intermediate()
	assert.True(t, ok)
	assert.Equal(t, intermediate, again)
	assert.Equal(t, must(t, "v1.18.6"), intermediate.Short())

	none, ok := long.Short().Intermediate()
	assert.False(t, ok)
	assert.True(t, none.IsZero())
	assert.Equal(t, long.Short(), long.Short().Short())
}

func TestZeroTagIsNotATag(t *testing.T) {
	t.Parallel()
	var zero tags.Tag
	assert.True(t, zero.IsZero())
	assert.Equal(t, parts{}, partsOf(zero))
	assert.Equal(t, "none", zero.Form().String())
	assert.Empty(t, zero.String())
	assert.True(t, zero.Short().IsZero())
	_, ok := zero.Intermediate()
	assert.False(t, ok)
}

func must(tb testing.TB, text string) tags.Tag {
	tb.Helper()
	tag, err := tags.Parse(text)
	require.NoError(tb, err)
	return tag
}

func mustAll(tb testing.TB, texts ...string) []tags.Tag {
	tb.Helper()
	all := make([]tags.Tag, 0, len(texts))
	for _, text := range texts {
		all = append(all, must(tb, text))
	}
	return all
}

func TestReasonOmitsTheText(t *testing.T) {
	t.Parallel()
	_, err := tags.Parse("1.5.4-rev5-build")
	assert.Equal(t, "empty build", tags.Reason(fmt.Errorf("wrapped: %w", err)))
	assert.Empty(t, tags.Reason(errors.New("another's")))
}

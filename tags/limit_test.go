// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/tags"
)

func TestExceeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tag, limit string
		want       bool
	}{
		{"4.1.9-rev3", "4.1", false},
		{"4.1", "4.1", false},
		{"4.2", "4.1", true},
		{"4.0.9", "4.1", false},
		{"5", "4.1", true},
		{"4", "4.1", false}, // has fewer numbers, and is lower by name
		{"4.10", "4.9", true},
		{"4.1.2-rev1-build9.9", "4.1.2-rev1", false},
		{"4.1.2-rev2", "4.1.2-rev1", true},
		{"4.1.2-rev10", "4.1.2-rev9", true},
		{"4.1.2", "4.1.2-rev1", false},
		{"4.1.3", "4.1.2-rev1", true},
		{"4.1.2-rev1-build5.1", "4.1.2-rev1-build5", false},
		{"4.1.2-rev1-build5.2", "4.1.2-rev1-build5.1", true},
		{"4.1.2-rev1-build5.1", "4.1.2-rev1-build5.1", false},
		{"4.1.2-rev1", "4.1.2-rev1-build5.1", false},
		{"v4.2", "4.1", true},
		{"v4.1", "4.1", false},
	} {
		tag, err := tags.Parse(c.tag)
		require.NoError(t, err)
		limit, err := tags.Parse(c.limit)
		require.NoError(t, err)
		assert.Equal(t, c.want, tag.Exceeds(limit), "%s over %s", c.tag, c.limit)
	}
	four, err := tags.Parse("4")
	require.NoError(t, err)
	assert.False(t, four.Exceeds(tags.Tag{}), "no limit")
	assert.False(t, tags.Tag{}.Exceeds(four))
}

// No tag exceeds itself or a shorter form of itself, and a tag that exceeds another is higher in the order.
func TestPropertyExceedsAgreesWithTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := goodTag().Draw(t, "a"), goodTag().Draw(t, "b")
		require.False(t, a.Exceeds(a))
		require.False(t, a.Exceeds(a.Short()))
		if i, ok := a.Intermediate(); ok {
			require.False(t, a.Exceeds(i))
		}
		if a.Exceeds(b) { // the text, the last key of Compare, decides only between equal tags
			require.Positive(t, tags.Compare(a, b), "%s exceeds %s", a, b)
		}
	})
}

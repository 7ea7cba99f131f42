// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

// changes are the changes between two tags.
var changes = []struct {
	from, to string
	change   tags.Change
}{
	{"2.6.2-rev1-build5.1", "2.6.2-rev1-build5.1", tags.Same},
	{"2.6.2-rev1-build5.1", "2.6.2-rev1-build5.2", tags.Rebuild},
	{"2.6.2-rev1-build5.1", "2.6.2-rev1-build5.1.1", tags.Rebuild},
	{"2.6.2-rev1-build5.9", "2.6.2-rev1-build5.19", tags.Rebuild},
	{"2.6.2-rev1-build5.1", "2.6.2-rev2-build1.1", tags.Revision},
	{"2.6.2-rev9", "2.6.2-rev10", tags.Revision},
	{"2.6.2-rev1-build5.1", "2.6.3-rev1-build1.1", tags.Patch},
	{"1.6.0.4", "1.6.0.5", tags.Patch},
	{"3.2", "3.2.1", tags.Patch},
	{"3.2", "3.2.0", tags.Patch},
	{"3.2.1", "3.2.1.0.0", tags.Patch},
	{"2.6.2", "2.7", tags.Minor},
	{"13", "13.1", tags.Minor},
	{"2.6.2", "3.0.0", tags.Major},
	{"9", "10", tags.Major},
	{"v1.18.6-rev2", "v1.19.0-rev1", tags.Minor},

	{"2.6.2-rev1-build5.2", "2.6.2-rev1-build5.1", tags.Lower},
	{"2.6.2-rev2-build1.1", "2.6.2-rev1-build5.1", tags.Lower},
	{"2.6.3-rev1", "2.6.2-rev9", tags.Lower},
	{"3.2.0", "3.2", tags.Lower},

	{"1.18.6", "v1.18.6", tags.Unrelated},
	{"v1.18.6", "2.0.0", tags.Unrelated},

	// a part that one tag lacks does not count
	{"2.6.2", "2.6.2-rev1", tags.Same},
	{"2.6.2-rev1", "2.6.2", tags.Same},
	{"2.6.2-rev1", "2.6.2-rev1-build5.1", tags.Same},
	{"2.6.2-rev1-build5.1", "2.6.2-rev1", tags.Same},
	{"2.6.2-rev1-build5.1", "2.6.2", tags.Same},
	// a part that both tags have counts
	{"2.6.2-rev1", "2.6.2-rev2-build1.1", tags.Revision},
	{"2.6.2-rev2-build1.1", "2.6.2-rev1", tags.Lower},
	{"2.6.2", "2.6.3-rev1-build1.1", tags.Patch},
}

func TestChangeBetween(t *testing.T) {
	t.Parallel()
	for _, c := range changes {
		got := tags.ChangeBetween(must(t, c.from), must(t, c.to))
		assert.Equal(t, c.change, got, "%s to %s: %v", c.from, c.to, got)
	}
	assert.Equal(t, tags.Unrelated, tags.ChangeBetween(tags.Tag{}, must(t, "1")))
	assert.Equal(t, tags.Unrelated, tags.ChangeBetween(must(t, "1"), tags.Tag{}))
}

// changeNames are the changes in their order.
var changeNames = []struct {
	change tags.Change
	name   string
	policy bool
}{
	{tags.Unrelated, "unrelated", false},
	{tags.Lower, "lower", false},
	{tags.Same, "none", true},
	{tags.Rebuild, "rebuild", true},
	{tags.Revision, "revision", true},
	{tags.Patch, "patch", true},
	{tags.Minor, "minor", true},
	{tags.Major, "major", true},
}

func TestChangeNames(t *testing.T) {
	t.Parallel()
	for i, c := range changeNames {
		assert.Equal(t, c.name, c.change.String())
		if i > 0 {
			assert.Greater(t, c.change, changeNames[i-1].change)
		}

		policy, err := tags.ParseChange(c.name)
		if c.policy {
			require.NoError(t, err)
			assert.Equal(t, c.change, policy)
		} else {
			require.Error(t, err)
			assert.Negative(t, int(c.change))
		}

		text, err := json.Marshal(c.change)
		require.NoError(t, err)
		assert.JSONEq(t, `"`+c.name+`"`, string(text))
		read := tags.Change(99)
		require.NoError(t, json.Unmarshal(text, &read))
		assert.Equal(t, c.change, read)
	}
	assert.Zero(t, tags.Same)
}

func TestUnknownChanges(t *testing.T) {
	t.Parallel()
	_, err := tags.ParseChange("Minor")
	require.EqualError(t, err, `tags: change "Minor": want one of none, rebuild, revision, patch, minor, major`)
	_, err = tags.ParseChange("")
	require.Error(t, err)

	kept := tags.Patch
	require.Error(t, kept.UnmarshalText([]byte("minr")))
	assert.Equal(t, tags.Patch, kept)

	assert.Equal(t, "change(6)", tags.Change(6).String())
	assert.Equal(t, "change(-3)", tags.Change(-3).String())
	_, err = tags.Change(6).MarshalText()
	assert.Error(t, err)
}

// SPDX-License-Identifier: Apache-2.0

package source

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

// A list is read again if it, the scheme or the followed tag is another one, and forgotten after a round that does not
// need it.
func TestListsAreReadOnce(t *testing.T) {
	t.Parallel()
	other, err := tags.NewScheme("", tags.AnyVersions, true)
	require.NoError(t, err)
	var scheme tags.Scheme
	from, err := scheme.Parse("1.0.0-rev1")
	require.NoError(t, err)
	m := new(Memory)
	// read reads a list, and reports whether both results are those of before.
	var before []tags.Tag
	var noted []tags.NotUnderstood
	read := func(names []string, unread []string, s tags.Scheme) bool {
		list := m.ordered("r.io/a", names, s)
		fresh, _, _ := parseAll(names, s)
		assert.Equal(t, fresh, list)
		notes := m.notUnderstood("r.io/a", list, unread, from, s)
		assert.Equal(t, (*Memory)(nil).notUnderstood("r.io/a", list, unread, from, s), notes)
		require.NotEmpty(t, notes)
		is := before != nil && &before[0] == &list[0] && &noted[0] == &notes[0]
		before, noted = list, notes
		return is
	}
	names, unread := []string{"1.0.0-rev1", "0.9.0-rev1"}, []string{"1.2.0-rev"}
	assert.False(t, read(names, unread, scheme))
	assert.True(t, read(names, unread, scheme), "in the same round")
	for range 3 {
		m.begin()
		assert.True(t, read([]string{"1.0.0-rev1", "0.9.0-rev1"}, []string{"1.2.0-rev"}, scheme), "in the next round")
	}
	assert.False(t, read(append(names, "0.8.0-rev1"), unread, scheme), "another list")
	assert.False(t, read(names, unread, scheme))
	assert.False(t, read(names, []string{"1.3.0-rev"}, scheme), "others were not parsed")
	assert.False(t, read(names, unread, other), "another scheme")
	assert.False(t, read(names, unread, scheme))
	m.begin()
	m.begin()
	assert.True(t, read(names, unread, scheme), "a round that read no list keeps it")
	m.begin()
	m.ordered("r.io/b", names, scheme)
	m.begin()
	m.ordered("r.io/b", names, scheme)
	assert.Len(t, m.orders.last, 1)
	assert.False(t, read(names, unread, scheme), "it was not needed in between")
}

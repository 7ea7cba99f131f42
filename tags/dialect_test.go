// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

// dialectTags are the RFC's spellings of one release, by dialect.
var dialectTags = map[tags.Dialect]struct{ intermediate, long string }{
	tags.Core:       {"v2.6.1-rev1", "v2.6.1-rev1-build5.1"},
	tags.Hyphen:     {"v2.6.1-1", "v2.6.1-1.5.1"},
	tags.HyphenDash: {"v2.6.1-1", "v2.6.1-1-5.1"},
	tags.ShortB:     {"v2.6.1-rev1", "v2.6.1-rev1-b5.1"},
	tags.Plus:       {"v2.6.1-rev1", "v2.6.1-rev1+5.1"},
}

// dialectRefusals are tags that a dialect does not take, with their classes.
var dialectRefusals = []struct {
	dialect tags.Dialect
	text    string
	class   tags.Class
}{
	{tags.Hyphen, "2.6.1-rev1-build5.1", tags.ClassMalformed},
	{tags.Hyphen, "2.6.1-1-5.1", tags.ClassMalformed},
	{tags.Hyphen, "2.6.1-01", tags.ClassMalformed},
	{tags.Hyphen, "2.6.1-1.", tags.ClassMalformed},
	{tags.Hyphen, "2.6.1-", tags.ClassMalformed},
	{tags.Hyphen, "15-openssl", tags.ClassForeign},
	{tags.Hyphen, "2.6.1-1.5.1-amd64", tags.ClassForeign},
	{tags.Hyphen, "v1.14.7-build20260909", tags.ClassForeign},
	{tags.Hyphen, "2.6.1-build5.1", tags.ClassForeign},
	{tags.Hyphen, "20.04.1", tags.ClassForeign},
	{tags.HyphenDash, "2.6.1-1.5.1", tags.ClassMalformed},
	{tags.HyphenDash, "2.6.1-1-", tags.ClassMalformed},
	{tags.HyphenDash, "latest", tags.ClassForeign},
	{tags.ShortB, "2.6.1-rev1-build5.1", tags.ClassMalformed},
	{tags.ShortB, "2.6.1-rev1-b", tags.ClassMalformed},
	{tags.ShortB, "2.6.1-1", tags.ClassForeign},
	{tags.ShortB, "2.6.1-b5.1", tags.ClassForeign},
	{tags.Plus, "2.6.1-rev1+", tags.ClassMalformed},
	{tags.Plus, "2.6.1-rev1+05", tags.ClassMalformed},
	{tags.Plus, "2.6.1-build5.1", tags.ClassMalformed},
	{tags.Plus, "2.6.1+5.1", tags.ClassForeign},
	{tags.Plus, "2.6.1-rev1+5+1", tags.ClassInvalid},
	{tags.Plus, "+5.1", tags.ClassInvalid},
	{tags.Plus, "2.6.1-rev1+" + strings.Repeat("1", 128-len("2.6.1-rev1-build")+1), tags.ClassInvalid},
	{tags.ShortB, "2.6.1-rev1+5.1", tags.ClassInvalid},
}

func TestDialectsReadOneRelease(t *testing.T) {
	t.Parallel()
	for dialect, spelled := range dialectTags {
		long, err := dialect.Parse(spelled.long)
		require.NoError(t, err)
		want := parts{form: tags.Long, app: "v2.6.1", rev: "1", build: "5.1", hasV: true}
		assert.Equal(t, want, partsOf(long), dialect)
		assert.Equal(t, spelled.long, long.String())

		intermediate, ok := long.Intermediate()
		require.True(t, ok)
		want.form, want.build = tags.Intermediate, ""
		assert.Equal(t, want, partsOf(intermediate), dialect)
		assert.Equal(t, spelled.intermediate, intermediate.String())

		parsed, err := dialect.Parse(spelled.intermediate)
		require.NoError(t, err)
		assert.Equal(t, intermediate, parsed)

		short, err := dialect.Parse("v2.6.1")
		require.NoError(t, err)
		assert.Equal(t, short, long.Short())
	}
}

func TestDialectsRefuse(t *testing.T) {
	t.Parallel()
	for _, refusal := range dialectRefusals {
		tag, err := refusal.dialect.Parse(refusal.text)
		assert.Equal(t, refusal.class, classOf(tag, err), "%v %s", refusal.dialect, refusal.text)
	}
}

func TestPlusNeverGoesOnTheWire(t *testing.T) {
	t.Parallel()
	tag, err := tags.Plus.Parse("2.6.1-rev1+5.1")
	require.NoError(t, err)
	assert.Equal(t, "2.6.1-rev1-build5.1", tag.Wire())
	assert.Equal(t, "2.6.1-rev1+5.1", tag.String())

	wire, err := tags.Plus.Parse(tag.Wire())
	require.NoError(t, err)
	assert.Equal(t, must(t, "2.6.1-rev1-build5.1"), wire)
	assert.Equal(t, tags.Same, tags.ChangeBetween(tag, wire))
	assert.NotZero(t, tags.Compare(tag, wire))

	for dialect, spelled := range dialectTags {
		if dialect == tags.Plus {
			continue
		}
		tag, err := dialect.Parse(spelled.long)
		require.NoError(t, err)
		assert.Equal(t, spelled.long, tag.Wire())
	}
}

func TestDialectOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]tags.Dialect{
		"2.6.1": tags.Core, "2.6.1-rev1": tags.Core, "2.6.1-1.5.1": tags.Hyphen, "2.6.1-1-5.1": tags.HyphenDash,
		"2.6.1-rev1-b5.1": tags.ShortB, "2.6.1-rev1+5.1": tags.Plus,
	} {
		got, is := tags.DialectOf(text)
		assert.True(t, is, text)
		assert.Equal(t, want, got, text)
	}
	_, is := tags.DialectOf("latest")
	assert.False(t, is)
}

func TestDialectNames(t *testing.T) {
	t.Parallel()
	for _, name := range tags.DialectNames() {
		parsed, err := tags.ParseDialect(name)
		require.NoError(t, err)
		assert.Equal(t, name, parsed.String())
		assert.Contains(t, dialectTags, parsed, "%s: no tag of it is tried", name)
	}
	parsed, err := tags.ParseDialect("")
	require.NoError(t, err)
	assert.Equal(t, tags.Core, parsed)

	message := `tags: dialect "Hyphen": unknown, one of ` + strings.Join(tags.DialectNames(), ", ")
	_, err = tags.ParseDialect("Hyphen")
	require.EqualError(t, err, message)
	_, err = tags.Dialect("Hyphen").Parse("2.6.1")
	assert.EqualError(t, err, message)
}

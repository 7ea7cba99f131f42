// SPDX-License-Identifier: Apache-2.0

package release

import (
	"testing"

	"github.com/distribution/reference"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// requireAsDistribution compares a usual reference with distribution's parser.
func requireAsDistribution(t require.TestingT, text string) (isUsual bool) {
	got, isUsual := parseUsual(text)
	if !isUsual {
		return false
	}
	named, err := reference.ParseNormalizedNamed(text)
	require.NoError(t, err, "%q", text)
	want := Reference{Repository: named.Name()}
	if tagged, is := named.(reference.Tagged); is {
		want.Tag = tagged.Tag()
	}
	require.Equal(t, want, got, "%q", text)
	return true
}

func TestUsualReferences(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"registry.suse.com/caasp/v4/velum:4.0.0-rev1": true, "127.0.0.1:5000/demo/app:1": true, "r.io/a": true, "r.io/a--b_c.d/e:V_1.0-x": true,
		"r.io/a:": false, "r.io/": false, "r.io": false, "docker.io/sles12/velum": false, "index.docker.io/a/b": false, "velum": false,
		"localhost:5000/a": false, "r.io/A": false, "R.io/a": false, "r.io/a@sha256:00": false, "r.io/a:1@sha256:00": false, "r.io/a__b": false,
		"r.io/a..b": false, "r.io/-a": false, "r.io/a-": false, "r.io:/a": false, "r.io:x/a": false, "r..io/a": false, "r.io/a/:1": false, "r.io//a": false,
		"r.io/a:.1": false, "r.io/a:-1": false, "r.io/a:1:2": false, "": false, "r.io/é": false, ".io/a": false, "r.-io/a": false,
	} {
		assert.Equal(t, want, requireAsDistribution(t, text), text)
	}
}

func TestUsualReferencesAreDistributions(t *testing.T) {
	t.Parallel()
	usual := 0
	rapid.Check(t, func(t *rapid.T) {
		if requireAsDistribution(t, rapid.StringMatching(`[ab0]{1,2}[.:-]?[abA]{0,2}\.[ab]{1,2}(:[0-9]{1,2})?/[ab0]{1,2}[._/-]{0,2}[abA]{0,2}(:[aA0_.-]{0,3})?`).Draw(t, "text")) {
			usual++
		}
	})
	assert.Positive(t, usual)
}

func FuzzParseReference(f *testing.F) {
	for _, text := range []string{"registry.suse.com/caasp/v4/velum:4.0.0-rev1", "r.io:1/a-b.c_d/e", "r.io/a@sha256:0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { requireAsDistribution(t, text) })
}

// SPDX-License-Identifier: Apache-2.0

package localregistry_test

import (
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/release"
)

const (
	velum = "registry.suse.com/caasp/v4/velum"
	index = "application/vnd.oci.image.index.v1+json"
)

var april = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)

// known are facts with denials and a source's descriptions.
type known struct {
	localregistry.Facts
	denied   map[digest.Digest]string
	releases map[release.Pin]release.Release
}

// facts returns facts for containers that each follow velum:4.0.0-rev1, with their known good releases; empty: none.
func facts(good ...string) *known {
	f := &known{denied: map[digest.Digest]string{}, releases: map[release.Pin]release.Release{}}
	f.Pulled, f.Private = map[string]digest.Digest{}, map[string]bool{}
	f.Known = func(p release.Pin) release.Release { return f.releases[p] }
	f.Denied = func(d digest.Digest) (string, bool) { reason, is := f.denied[d]; return reason, is }
	for _, ran := range good {
		f.Followed = append(f.Followed, localregistry.Followed{Reference: tag, Good: sum(ran)})
	}
	return f
}

// sum returns the digest of a release; empty for an empty name.
func sum(name string) digest.Digest {
	if name == "" {
		return ""
	}
	return digest.FromString(name)
}

// pins adds complete pins of releases that the tag has named, created one after another.
func (f *known) pins(names ...string) {
	for n, name := range names {
		pin := release.Pin{Repository: velum, Digest: sum(name)}
		f.Images = append(f.Images, localregistry.Image{Pin: pin, MediaType: index, Size: 100})
		f.releases[pin] = release.Release{
			Tag: tag.Tag, Build: release.Build{Created: april.Add(time.Duration(n) * time.Hour)},
		}
	}
}

var tag = release.Reference{Repository: velum, Tag: "4.0.0-rev1"}

func named(name string) localregistry.Named {
	return localregistry.Named{Reference: tag, Digest: sum(name)}
}

func TestMake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		good []string
		set  func(f *known)
		want string // empty: the tag is omitted
		why  string
	}{
		"what ran well": {[]string{"one"}, func(f *known) { f.pins("one", "two") }, "one", ""},
		"nothing ran yet": {
			[]string{""}, func(f *known) { f.pins("one") }, "", "no release of this tag is known to have run well",
		},
		"an approved apply": {[]string{"one"}, func(f *known) {
			f.pins("one", "two")
			f.UnderWay = []localregistry.Named{named("two")}
		}, "two", ""},
		"the first of two applies": {[]string{"one"}, func(f *known) {
			f.pins("one", "two", "three")
			f.UnderWay = []localregistry.Named{named("two"), named("three")}
		}, "two", ""},
		"an approved apply that is not complete": {[]string{"one"}, func(f *known) {
			f.pins("one")
			f.UnderWay = []localregistry.Named{named("two")}
		}, "one", ""},
		"an approved apply that is denied": {[]string{"one"}, func(f *known) {
			f.pins("one", "two")
			f.denied[sum("two")] = "it fell"
			f.UnderWay = []localregistry.Named{named("two")}
		}, "one", ""},
		"not pinned": {
			[]string{"one"}, func(f *known) { f.pins("two"); f.Pulled[tag.String()] = sum("one") }, "", "is incomplete or not pinned",
		},
		"pinned for another repository": {[]string{"one"}, func(f *known) {
			f.pins("one")
			f.Images[0].Repository = velum + "/copy"
		}, "", "is incomplete or not pinned"},
		"a login page": {[]string{"one"}, func(f *known) {
			f.pins("one")
			f.Images[0].MediaType = "text/html"
		}, "", "is not an image manifest"},
		"denied": {[]string{"one"}, func(f *known) {
			f.pins("one")
			f.denied[sum("one")] = "it fell"
		}, "", "it fell"},
		"a login": {[]string{"one"}, func(f *known) {
			f.pins("one")
			f.Private[velum] = true
		}, "", "private"},
		"a login, and the setting": {[]string{"one"}, func(f *known) {
			f.pins("one")
			f.Private[velum] = true
			f.ServePrivate = true
		}, "one", ""},
		"ran well under another tag": {[]string{"one"}, func(f *known) {
			f.pins("one")
			clear(f.releases)
		}, "", "no release of this tag is known to have run well"},
		"kubelet pulled it by this tag": {[]string{"one"}, func(f *known) {
			f.pins("one")
			clear(f.releases)
			f.Pulled[tag.String()] = sum("one")
		}, "one", ""},
		"two pods, what kubelet pulled last": {[]string{"one", "two"}, func(f *known) {
			f.pins("one", "two")
			f.Pulled[tag.String()] = sum("one")
		}, "one", ""},
		"two pods, what was created last": {
			[]string{"two", "one"}, func(f *known) { f.pins("one", "two") }, "two", "",
		},
		"two pods, one denied": {[]string{"two", "one"}, func(f *known) {
			f.pins("one", "two")
			f.denied[sum("two")] = "it fell"
		}, "one", ""},
		"a rollback": {[]string{"two"}, func(f *known) {
			f.pins("one", "two")
			f.Followed[0].Pending = sum("one")
		}, "one", ""},
		"what the pod manifest names": {[]string{"two"}, func(f *known) {
			f.pins("one", "two")
			f.Followed[0].Written = sum("one")
		}, "one", ""},
		"what the last table says": {[]string{""}, func(f *known) {
			f.pins("one")
			f.Last = localregistry.Table{Entries: []localregistry.Entry{entry("one")}}
		}, "one", ""},
		"what ran well since": {[]string{"two"}, func(f *known) {
			f.pins("one", "two")
			f.Last = localregistry.Table{Entries: []localregistry.Entry{entry("one")}}
		}, "two", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts(c.good...)
			c.set(f)
			table, omitted := localregistry.Make(f.Facts)
			require.NoError(t, table.Check())
			if c.want == "" {
				assert.Empty(t, table.Entries)
				require.Len(t, omitted, 1)
				assert.Equal(t, tag, omitted[0].Reference)
				assert.Contains(t, omitted[0].Reason, c.why)
				return
			}
			assert.Empty(t, omitted)
			assert.Equal(t, []localregistry.Entry{entry(c.want)}, table.Entries)
		})
	}
}

func entry(name string) localregistry.Entry {
	return localregistry.Entry{
		Registry: "registry.suse.com", Repository: "caasp/v4/velum", Tag: "4.0.0-rev1", Digest: sum(name).String(), MediaType: index, Size: 100,
	}
}

// For random facts, a table names only digests that are approved, pinned, not denied and without a login, and passes
// Check.
func TestMakeNamesOnlyAllowedDigests(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := []string{"one", "two", "three", "four"}
		some := func(label string) []string {
			return rapid.SliceOfDistinct(rapid.SampledFrom(all), rapid.ID[string]).Draw(t, label)
		}
		maybe := rapid.SampledFrom(append(all, ""))
		f := facts(maybe.Draw(t, "a ran"), maybe.Draw(t, "b ran"))
		pinned, denied, underWay := some("pinned"), some("denied"), some("under way")
		f.pins(pinned...)
		for n := range f.Images {
			f.Images[n].MediaType = rapid.SampledFrom([]string{index, "text/html", ""}).Draw(t, "type")
			f.Images[n].Size = rapid.Int64Range(-1, 10<<20).Draw(t, "size")
		}
		for _, d := range denied {
			f.denied[sum(d)] = "it fell"
		}
		for _, d := range underWay {
			f.UnderWay = append(f.UnderWay, named(d))
		}
		f.Pulled[tag.String()] = sum(maybe.Draw(t, "the tag's record"))
		if last := maybe.Draw(t, "last"); last != "" {
			f.Last = localregistry.Table{Entries: []localregistry.Entry{entry(last)}}
		}
		private := rapid.Bool().Draw(t, "private")
		if private {
			f.Private[velum] = true
		}
		f.ServePrivate = rapid.Bool().Draw(t, "serve private")

		table, omitted := localregistry.Make(f.Facts)
		require.NoError(t, table.Check())
		require.LessOrEqual(t, len(table.Entries), 1)
		require.Len(t, omitted, 1-len(table.Entries))
		for _, e := range table.Entries {
			require.False(t, private && !f.ServePrivate)
			require.NotContains(t, f.denied, digest.Digest(e.Digest))
			require.True(t, slices.ContainsFunc(pinned, func(name string) bool { return sum(name).String() == e.Digest }))
			require.True(t, isKnown(f, e), "%v is unknown", e)
		}
	})
}

// isKnown reports whether a digest was approved, is known good, or was in the last table.
func isKnown(f *known, e localregistry.Entry) bool {
	for _, at := range f.Followed {
		if at.Good.String() == e.Digest {
			return true
		}
	}
	for _, n := range f.UnderWay {
		if n.Digest.String() == e.Digest {
			return true
		}
	}
	return len(f.Last.Entries) > 0 && f.Last.Entries[0].Digest == e.Digest
}

// SPDX-License-Identifier: Apache-2.0

package ownhost_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

const (
	velum = "registry.suse.com/caasp/v4/velum"
	index = "application/vnd.oci.image.index.v1+json"
)

var april = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)

// facts are of pods that each follow velum:4.0.0-rev1, by file name, with what ran well in them.
func facts(good map[string]string) ownhost.Facts {
	f := ownhost.Facts{Record: record.Record{}}
	for _, file := range []string{"a.yaml", "b.yaml"} {
		ran, ok := good[file]
		if !ok {
			continue
		}
		f.Inventory.PodManifests = append(f.Inventory.PodManifests, node.PodFile{Name: file, Data: []byte(pod(file))})
		if ran != "" {
			f.Record.Good.Set(record.GoodKey(file, "velum"), record.Good{Repository: velum, Running: sum(ran)})
		}
	}
	return f
}

func pod(file string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %c}\nspec:\n  containers:\n  - name: velum\n    image: %s:4.0.0-rev1\n",
		file[0], velum)
}

func sum(name string) digest.Digest { return digest.FromString(name) }

// pins adds complete pins of releases that the tag has named, created one after another.
func pins(f *ownhost.Facts, names ...string) {
	for n, name := range names {
		f.Inventory.Held = append(f.Inventory.Held, node.HeldImage{
			Name: "pin/" + name, Digest: sum(name), Pin: true, Complete: true, Repository: velum, MediaType: index, Size: 100,
		})
		f.Record.Releases.Set(release.Key(velum, sum(name)), release.Release{
			Repository: velum, Tag: "4.0.0-rev1", Digest: sum(name),
			Build: release.Build{Created: april.Add(time.Duration(n) * time.Hour)},
		})
	}
}

var tag = release.Reference{Repository: velum, Tag: "4.0.0-rev1"}

func named(name string) ownhost.Named { return ownhost.Named{Reference: tag, Digest: sum(name)} }

// pulled lets containerd's record of the tag name a digest.
func pulled(f *ownhost.Facts, name string) {
	f.Inventory.Held = append(f.Inventory.Held, node.HeldImage{Name: tag.String(), Digest: sum(name)})
}

func TestMake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		good map[string]string
		set  func(f *ownhost.Facts)
		want string // empty: the tag is left out
		why  string
	}{
		"what ran well": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) { pins(f, "one", "two") }, "one", ""},
		"nothing ran yet": {
			map[string]string{"a.yaml": ""}, func(f *ownhost.Facts) { pins(f, "one") }, "", "nothing is known to have run well",
		},
		"an approved apply": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one", "two")
			f.UnderWay = []ownhost.Named{named("two")}
		}, "two", ""},
		"the first of two applies": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one", "two", "three")
			f.UnderWay = []ownhost.Named{named("two"), named("three")}
		}, "two", ""},
		"an approved apply that is not complete": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one", "two")
			f.Inventory.Held[1].Complete = false
			f.UnderWay = []ownhost.Named{named("two")}
		}, "one", ""},
		"an approved apply that is denied": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one", "two")
			f.Record.Denied.Set(release.Key(velum, sum("two")), record.Denial{})
			f.UnderWay = []ownhost.Named{named("two")}
		}, "one", ""},
		"not pinned": {
			map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) { pins(f, "two"); pulled(f, "one") }, "", "not complete and pinned",
		},
		"pinned for another repository": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one")
			f.Inventory.Held[0].Repository = velum + "/copy"
		}, "", "not complete and pinned"},
		"a login page": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one")
			f.Inventory.Held[0].MediaType = "text/html"
		}, "", "no image manifest"},
		"denied": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one")
			f.Record.Denied.Set(release.Key(velum, sum("one")), record.Denial{Reason: "it fell"})
		}, "", "it fell"},
		"a login": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one")
			f.Record.Private.Set(velum, true)
		}, "", "private"},
		"a login, and the setting": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one")
			f.Record.Private.Set(velum, true)
			f.Policy.ServePrivate = true
		}, "one", ""},
		"ran well under another tag": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one")
			f.Record.Releases.Delete(release.Key(velum, sum("one")))
		}, "", "nothing is known to have run well"},
		"kubelet pulled it by this tag": {map[string]string{"a.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one")
			f.Record.Releases.Delete(release.Key(velum, sum("one")))
			pulled(f, "one")
		}, "one", ""},
		"two pods, what kubelet pulled last": {map[string]string{"a.yaml": "one", "b.yaml": "two"}, func(f *ownhost.Facts) {
			pins(f, "one", "two")
			pulled(f, "one")
		}, "one", ""},
		"two pods, what was created last": {
			map[string]string{"a.yaml": "two", "b.yaml": "one"}, func(f *ownhost.Facts) { pins(f, "one", "two") }, "two", "",
		},
		"two pods, one denied": {map[string]string{"a.yaml": "two", "b.yaml": "one"}, func(f *ownhost.Facts) {
			pins(f, "one", "two")
			f.Record.Denied.Set(release.Key(velum, sum("two")), record.Denial{})
		}, "one", ""},
		"a rollback": {map[string]string{"a.yaml": "two"}, func(f *ownhost.Facts) {
			pins(f, "one", "two")
			f.Record.Overrides.Set("a.yaml", record.Override{Pending: true, Images: map[string]record.PinnedImage{
				"container velum": {Pin: release.Pin{Repository: velum, Digest: sum("one")}, Follow: tag.Tag},
			}})
		}, "one", ""},
		"what the last table says": {map[string]string{"a.yaml": ""}, func(f *ownhost.Facts) {
			pins(f, "one")
			f.Last = ownhost.Table{Entries: []ownhost.Entry{entry("one")}}
		}, "one", ""},
		"what ran well since": {map[string]string{"a.yaml": "two"}, func(f *ownhost.Facts) {
			pins(f, "one", "two")
			f.Last = ownhost.Table{Entries: []ownhost.Entry{entry("one")}}
		}, "two", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts(c.good)
			c.set(&f)
			table, omitted := ownhost.Make(f)
			require.NoError(t, table.Check())
			if c.want == "" {
				assert.Empty(t, table.Entries)
				require.Len(t, omitted, 1)
				assert.Equal(t, tag, omitted[0].Reference)
				assert.Contains(t, omitted[0].Reason, c.why)
				return
			}
			assert.Empty(t, omitted)
			assert.Equal(t, []ownhost.Entry{entry(c.want)}, table.Entries)
		})
	}
}

func entry(name string) ownhost.Entry {
	return ownhost.Entry{
		Registry: "registry.suse.com", Repository: "caasp/v4/velum", Tag: "4.0.0-rev1", Digest: sum(name), MediaType: index, Size: 100,
	}
}

// Whatever a node has, a table names only what was approved, is pinned, is not denied and needs no
// login, and it can be used.
func TestMakeNamesOnlyWhatItMay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := []string{"one", "two", "three", "four"}
		some := func(label string) []string {
			return rapid.SliceOfDistinct(rapid.SampledFrom(all), rapid.ID[string]).Draw(t, label)
		}
		maybe := rapid.SampledFrom(append(all, ""))
		f := facts(map[string]string{"a.yaml": maybe.Draw(t, "a ran"), "b.yaml": maybe.Draw(t, "b ran")})
		pinned, denied, underWay := some("pinned"), some("denied"), some("under way")
		pins(&f, pinned...)
		for n := range f.Inventory.Held {
			f.Inventory.Held[n].Complete = rapid.Bool().Draw(t, "complete")
			f.Inventory.Held[n].MediaType = rapid.SampledFrom([]string{index, "text/html", ""}).Draw(t, "type")
			f.Inventory.Held[n].Size = rapid.Int64Range(-1, 10<<20).Draw(t, "size")
		}
		for _, d := range denied {
			f.Record.Denied.Set(release.Key(velum, sum(d)), record.Denial{})
		}
		for _, d := range underWay {
			f.UnderWay = append(f.UnderWay, named(d))
		}
		if tagged := maybe.Draw(t, "the tag's record"); tagged != "" {
			pulled(&f, tagged)
		}
		if last := maybe.Draw(t, "last"); last != "" {
			f.Last = ownhost.Table{Entries: []ownhost.Entry{entry(last)}}
		}
		private := rapid.Bool().Draw(t, "private")
		if private {
			f.Record.Private.Set(velum, true)
		}
		f.Policy = policy.Policy{ServePrivate: rapid.Bool().Draw(t, "serve private")}

		table, omitted := ownhost.Make(f)
		require.NoError(t, table.Check())
		require.LessOrEqual(t, len(table.Entries), 1)
		require.Len(t, omitted, 1-len(table.Entries))
		for _, e := range table.Entries {
			require.False(t, private && !f.Policy.ServePrivate)
			_, isDenied := f.Record.Denies(release.Release{Digest: e.Digest})
			require.False(t, isDenied)
			require.True(t, f.Inventory.Staged(release.Release{Repository: velum, Digest: e.Digest}))
			require.True(t, isKnown(f, e), "%v is nobody's", e)
		}
	})
}

// isKnown reports whether a digest was approved, ran well, or stood in the last table.
func isKnown(f ownhost.Facts, e ownhost.Entry) bool {
	for _, g := range f.Record.Good {
		if g.Running == e.Digest {
			return true
		}
	}
	for _, n := range f.UnderWay {
		if n.Digest == e.Digest {
			return true
		}
	}
	return len(f.Last.Entries) > 0 && f.Last.Entries[0].Digest == e.Digest
}

// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// history is a catalog that publishers change at random, and what must hold of it.
type history struct {
	t       *rapid.T
	p       *publish.Publisher
	now     time.Time
	builds  map[string]catalog.Change     // what may be added, by member
	added   map[string]bool               // by member: reported as added to stage
	sets    map[string]map[string]bool    // by name: the members that were reported as added
	revoked map[string]bool               // digests that prod has withdrawn
	before  map[string]map[string]listing // by channel
}

// listing is what a channel lists, by member.
type listing = catalog.Release

// What publishers report holds: no add is lost, what was withdrawn is offered again only where somebody has asked for it, and
// no set is promoted in part, whatever they prune.
func TestHistoriesOfPublishers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	builds := map[string]catalog.Change{}
	for _, image := range []string{"velum", "etcd"} {
		for n := range 4 {
			d := r.push(image, fmt.Sprint(image, n/2), build(n)) // two tags of each digest
			c := catalog.Change{Image: r.host + "/" + image, Release: catalog.Release{Tag: build(n), Digest: digest.Digest(d), Created: noon}}
			builds[c.Member()] = c
		}
	}
	var count atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{
			t: rt, now: noon, builds: builds, added: map[string]bool{}, sets: map[string]map[string]bool{}, revoked: map[string]bool{},
		}
		h.p = r.publisher(func(o *publish.Options) {
			o.Repository = fmt.Sprintf("%s/catalog%d", r.host, count.Add(1))
			o.Now = func() time.Time { return h.now }
			o.Store.Transport = direct{r.handler}
		})
		for _, channel := range []string{"stage", "prod"} {
			_, err := h.p.Change(t.Context(), channel, publish.Refresh(time.Time{}), publish.How{New: true})
			require.NoError(rt, err)
		}
		for range rapid.IntRange(2, 7).Draw(rt, "steps") {
			h.before = map[string]map[string]listing{"stage": h.listed("stage"), "prod": h.listed("prod")}
			rapid.SampledFrom([]func(){h.add, h.add, h.promote, h.promote, h.withdraw, h.prune}).Draw(rt, "step")()
			h.check()
		}
		for _, channel := range []string{"stage", "prod"} {
			findings, err := h.p.Verify(t.Context(), channel, false)
			require.NoError(rt, err)
			require.Empty(rt, findings)
		}
	})
}

func (h *history) listed(channel string) map[string]listing {
	v, err := h.p.Read(h.t.Context(), channel)
	require.NoError(h.t, err)
	pages, err := h.p.Pages(h.t.Context(), v)
	require.NoError(h.t, err)
	out := map[string]listing{}
	for image, page := range pages {
		for _, r := range page.Releases {
			out[catalog.Member(image, r.Tag)] = r
		}
	}
	return out
}

// some draws some of the builds.
func (h *history) some(label string) []string {
	all := slices.Sorted(maps.Keys(h.builds))
	return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 3, rapid.ID[string]).Draw(h.t, label)
}

func (h *history) set(label string) string {
	return rapid.SampledFrom([]string{"", "a", "b"}).Draw(h.t, label)
}

func (h *history) add() {
	set, changes := h.set("set"), []catalog.Change(nil)
	members := h.some("add")
	for _, member := range members {
		c := h.builds[member]
		c.Release.Set = set
		changes = append(changes, c)
	}
	if _, err := h.p.Change(h.t.Context(), "stage", added(changes...), publish.How{}); err != nil {
		require.Equal(h.t, publish.KindWithdrawn, kindOf(err), "%v", err)
		require.Equal(h.t, h.before["stage"], h.listed("stage"), "all of it, or nothing")
		return
	}
	stage := h.listed("stage")
	for _, member := range members {
		is, listed := stage[member]
		if !listed || is.Withdrawn != nil {
			continue
		}
		h.added[member] = true
		if set != "" {
			if h.sets[set] == nil {
				h.sets[set] = map[string]bool{}
			}
			h.sets[set][member] = true
			require.Equal(h.t, set, is.Set, member)
		}
	}
}

func (h *history) promote() {
	s := publish.Selection{}
	switch rapid.IntRange(0, 2).Draw(h.t, "selection") {
	case 0:
		s.All = true
	case 1:
		s.Set = rapid.SampledFrom([]string{"a", "b"}).Draw(h.t, "promoted set")
	default:
		s.Images = h.some("promote")
		s.Withdrawn = rapid.Bool().Draw(h.t, "withdrawn")
	}
	stage, err := h.p.Offer(h.t.Context(), "stage")
	require.NoError(h.t, err)
	var rollout *catalog.Rollout
	if rapid.Bool().Draw(h.t, "rollout") {
		rollout = &catalog.Rollout{From: h.now.UTC(), Hours: 48}
	}
	do := publish.Promote(stage, publish.Promotion{Selection: s, Rollout: rollout})
	chosen, err := drafted(h.t.Context(), h.p, "prod", do)
	if err == nil {
		_, err = h.p.Change(h.t.Context(), "prod", do, publish.How{})
	}
	after := h.listed("prod")
	if err != nil {
		require.Contains(h.t, []publish.Kind{publish.KindImage, publish.KindWithdrawn, publish.KindAgain, publish.KindSet}, kindOf(err), "%v", err)
		require.Equal(h.t, h.before["prod"], after, "all of it, or nothing")
		return
	}
	for _, c := range chosen.Changes {
		is := after[c.Member()]
		require.Nil(h.t, is.Withdrawn, "%s", c.Member())
		if s.Withdrawn {
			delete(h.revoked, string(is.Digest))
		}
		for member := range h.sets[c.Release.Set] {
			there, listed := after[member]
			require.True(h.t, listed && there.Withdrawn == nil, "%s without %s", c.Member(), member)
			require.Contains(h.t, is.Members, member)
			if !s.Withdrawn && s.Images == nil {
				require.Equal(h.t, is.Rollout, there.Rollout, "one time for a set")
			}
		}
	}
}

func (h *history) withdraw() {
	channel := rapid.SampledFrom([]string{"prod", "prod", "stage"}).Draw(h.t, "channel")
	w := publish.Withdrawal{Reason: "bsc#1"}
	if w.Set = h.set("withdrawn set"); w.Set == "" {
		w.Images = h.some("withdraw")
	}
	chosen, err := drafted(h.t.Context(), h.p, channel, publish.Withdraw(w))
	if err == nil {
		_, err = h.p.Change(h.t.Context(), channel, publish.Withdraw(w), publish.How{})
	}
	after := h.listed(channel)
	if err != nil {
		require.Equal(h.t, publish.KindImage, kindOf(err), "%v", err)
		require.Equal(h.t, h.before[channel], after, "all of it, or nothing")
		return
	}
	for _, c := range chosen.Changes {
		require.NotNil(h.t, after[c.Member()].Withdrawn)
		if channel == "prod" {
			h.revoked[string(c.Release.Digest)] = true
		}
	}
	for member, r := range after {
		require.False(h.t, w.Set != "" && r.Set == w.Set && r.Withdrawn == nil, "%s of the set stays", member)
	}
}

func (h *history) prune() {
	h.now = h.now.Add(time.Duration(rapid.IntRange(1, 30).Draw(h.t, "hours")) * time.Hour)
	for _, channel := range []string{"stage", "prod"} {
		_, err := h.p.Prune(h.t.Context(), channel, publish.Pruning{Keep: 1})
		require.NoError(h.t, err)
		require.Equal(h.t, h.before[channel], h.listed(channel))
	}
}

// check checks what holds after each step.
func (h *history) check() {
	stage, prod := h.listed("stage"), h.listed("prod")
	for member := range h.added {
		require.Contains(h.t, stage, member, "it was reported as added")
	}
	for member, r := range prod {
		require.False(h.t, r.Withdrawn == nil && h.revoked[string(r.Digest)], "%s is offered again", member)
	}
}

// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// addSet pushes images and adds them to a set; content stands for the digest.
func (r *rig) addSet(p *publish.Publisher, channel, set string, images ...string) (publish.Result, error) {
	r.t.Helper()
	for _, i := range images {
		repository, tag, _ := strings.Cut(i, ":")
		r.push(repository, i, tag)
	}
	return r.addTo(p, channel, set, images...)
}

// promote promotes from stage to prod.
func (r *rig) promote(p *publish.Publisher, s publish.Selection, rollout *catalog.Rollout) (publish.Result, error) {
	r.t.Helper()
	stage, err := p.Offer(r.t.Context(), "stage")
	require.NoError(r.t, err)
	return p.Change(r.t.Context(), "prod", publish.Promote(stage, publish.Promotion{Selection: s, Rollout: rollout}), publish.How{})
}

func (r *rig) withdraw(p *publish.Publisher, channel string, w publish.Withdrawal) error {
	r.t.Helper()
	if w.Reason == "" {
		w.Reason = "bsc#1"
	}
	_, err := p.Change(r.t.Context(), channel, publish.Withdraw(w), publish.How{})
	return err
}

// release returns what a channel lists under a tag.
func (r *rig) release(p *publish.Publisher, channel, image string) *catalog.Release {
	r.t.Helper()
	repository, tag, _ := strings.Cut(image, ":")
	v, err := p.Read(r.t.Context(), channel)
	require.NoError(r.t, err)
	pages, err := p.Pages(r.t.Context(), v, r.host+"/"+repository)
	require.NoError(r.t, err)
	for _, each := range pages[r.host+"/"+repository].Releases {
		if each.Tag == tag {
			return &each
		}
	}
	return nil
}

func (r *rig) members(images ...string) []string {
	var out []string
	for _, i := range images {
		out = append(out, r.host+"/"+i)
	}
	return out
}

// build is the tag of the n-th build.
func build(n int) string { return fmt.Sprintf("4.0.0-rev1-build1.%d", n) }

func TestWithdrawnReleasesAreNotOfferedAgain(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		selection publish.Selection
		kind      publish.Kind // "": it is skipped
		offered   bool
	}{
		"all":                       {publish.Selection{All: true}, "", false},
		"the repository":            {publish.Selection{Images: []string{"velum"}}, "", false},
		"the repository, with flag": {publish.Selection{Images: []string{"velum"}, Withdrawn: true}, publish.KindInput, false},
		"its set":                   {publish.Selection{Set: "caasp-1"}, publish.KindWithdrawn, false},
		"its tag":                   {publish.Selection{Images: []string{"velum:" + build(1)}}, publish.KindAgain, false},
		"its tag, with flag":        {publish.Selection{Images: []string{"velum:" + build(1)}, Withdrawn: true}, "", true},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.publisher(nil)
			r.begin(p, "stage", "prod")
			r.lists(p, "stage", "caasp-1", "velum:"+build(1), "etcd:"+build(1))
			r.lists(p, "stage", "", "other:"+build(1))
			_, err := r.promote(p, publish.Selection{Set: "caasp-1"}, nil)
			require.NoError(t, err)
			require.NoError(t, r.withdraw(p, "prod", publish.Withdrawal{Images: []string{"velum:" + build(1)}, Reason: "bsc#1: bad"}))

			got, err := r.promote(p, c.selection, nil)
			assert.Equal(t, c.kind, kindOf(err), "%v", err)
			if err != nil && c.kind != publish.KindInput {
				require.ErrorContains(t, err, "withdrawn from prod: bsc#1: bad")
			}
			assert.Equal(t, c.offered, r.release(p, "prod", "velum:"+build(1)).Withdrawn == nil)
			if c.selection.All {
				assert.Len(t, r.listed(p, "prod", "other"), 1, "the others are promoted")
			}
			if err == nil && !c.offered {
				at := 0
				for at < len(got.Outcomes)-1 && got.Outcomes[at].Image != r.host+"/velum" {
					at++
				}
				assert.True(t, got.Outcomes[at].Skipped)
				assert.Equal(t, "skipped: withdrawn from prod: bsc#1: bad", got.Outcomes[at].Note)
			}
		})
	}
}

// The digest counts, whatever its tag: nodes run digests.
func TestAWithdrawnDigestIsNotOfferedUnderAnotherTag(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage", "prod")
	r.push("velum", "one", build(1), build(2))
	for _, channel := range []string{"stage", "prod"} {
		_, err := r.add(p, channel, "velum:"+build(1))
		require.NoError(t, err)
	}
	require.NoError(t, r.withdraw(p, "prod", publish.Withdrawal{Images: []string{"velum:" + build(1)}}))
	got, err := r.add(p, "prod", "velum:"+build(2))
	require.NoError(t, err)
	assert.False(t, got.Changed)
	assert.Equal(t, "withdrawn from prod as "+build(1)+": bsc#1", got.Outcomes[0].Note)
	_, err = r.add(p, "stage", "velum:"+build(2))
	require.NoError(t, err)
	got, err = r.promote(p, publish.Selection{All: true}, nil)
	require.NoError(t, err)
	assert.False(t, got.Changed)
	assert.Equal(t, []string{"-" + build(1)}, r.listed(p, "prod", "velum"))
	_, err = r.promote(p, publish.Selection{Images: []string{"velum:" + build(2)}}, nil)
	assert.Equal(t, publish.KindAgain, kindOf(err), "%v", err)
	_, err = r.promote(p, publish.Selection{Images: []string{"velum:" + build(2)}, Withdrawn: true}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{build(2), build(1)}, r.listed(p, "prod", "velum"), "nodes find a digest under one of its tags")
	require.NoError(t, r.withdraw(p, "prod", publish.Withdrawal{Images: []string{"velum:" + build(1)}}))
	assert.Equal(t, []string{"-" + build(2), "-" + build(1)}, r.listed(p, "prod", "velum"))
}

// An older publisher has withdrawn one tag of a digest only.
func TestAWithdrawnDigestIsNotPromotedUnderAnotherTag(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage", "prod")
	r.push("velum", "one", build(1), build(2))
	_, err := r.add(p, "stage", "velum:"+build(1), "velum:"+build(2))
	require.NoError(t, err)
	gone := *r.release(p, "stage", "velum:"+build(1))
	gone.Withdrawn = &catalog.Withdrawal{At: noon, Reason: "bsc#1"}
	r.does(p, "stage", publish.Ask(ops.Want{
		Do: catalog.ActionWithdraw, Changes: []catalog.Change{{Image: r.host + "/velum", Release: gone}},
	}), publish.How{})
	got, err := r.promote(p, publish.Selection{All: true}, nil)
	require.NoError(t, err)
	assert.Equal(t, "skipped: withdrawn from stage as "+build(1)+": bsc#1", got.Outcomes[0].Note)
	_, err = r.promote(p, publish.Selection{Images: []string{"velum:" + build(2)}}, nil)
	assert.Equal(t, publish.KindWithdrawn, kindOf(err), "%v", err)
	assert.Empty(t, r.listed(p, "prod", "velum"))
}

// A set that is too large to be recorded is refused before anything is stored.
func TestASetThatIsTooLargeIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage")
	var many []catalog.Change
	for n := range 600 {
		many = append(many, catalog.Change{Image: r.host + "/velum", Release: catalog.Release{
			Tag: build(n), Digest: digest.FromString(build(n)), Set: "caasp-1",
		}})
	}
	before := r.tags()
	_, err := p.Change(t.Context(), "stage", added(many...), publish.How{})
	assert.Equal(t, publish.KindInput, kindOf(err), "%v", err)
	require.ErrorContains(t, err, "set caasp-1: members: more than 512 of them")
	assert.Equal(t, before, r.tags())
}

// A withdrawal that is stored, and that nobody has published yet, counts.
func TestAWithdrawalThatWaitsCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage", "prod")
	for _, channel := range []string{"stage", "prod"} {
		r.lists(p, channel, "", "velum:"+build(1))
	}
	killed := r.publisher(func(o *publish.Options) { o.Store.Transport = &killed{at: 2} })
	require.ErrorIs(t, r.withdraw(killed, "prod", publish.Withdrawal{Images: []string{"velum:" + build(1)}}), errKilled)
	_, err := r.promote(p, publish.Selection{Images: []string{"velum:" + build(1)}}, nil)
	assert.Equal(t, publish.KindAgain, kindOf(err), "%v", err)
	_, err = p.Change(t.Context(), "prod", publish.Ask(ops.Want{Do: catalog.ActionPromote, Changes: []catalog.Change{
		{Image: r.host + "/velum", Release: *r.release(p, "stage", "velum:"+build(1))},
	}}), publish.How{})
	assert.Equal(t, publish.KindAgain, kindOf(err), "however it was selected: %v", err)
	r.lists(p, "stage", "", "etcd:"+build(1))
	got, err := r.promote(p, publish.Selection{All: true}, &catalog.Rollout{From: noon, Hours: 1})
	require.NoError(t, err, "it is skipped, and completed")
	assert.Equal(t, catalog.ActionWithdraw, got.Others[0].Do)
	assert.Equal(t, []string{build(1)}, r.listed(p, "prod", "etcd"))
	assert.Equal(t, []string{"-" + build(1)}, r.listed(p, "prod", "velum"))
}

func TestASetIsPromotedAsAWhole(t *testing.T) {
	t.Parallel()
	const newer = 40
	want := []string{"etcd:" + build(1), "velum:" + build(1)}
	for title, c := range map[string]struct {
		add  func(r *rig, p *publish.Publisher) error
		then func(r *rig, p *publish.Publisher)
		s    publish.Selection
		kind publish.Kind
		text string
	}{
		"added at once": {s: publish.Selection{Set: "caasp-1"}},
		"added one by one": {
			add: func(r *rig, p *publish.Publisher) error {
				_, err := r.addSet(p, "stage", "caasp-1", want[1])
				if err == nil {
					_, err = r.addSet(p, "stage", "caasp-1", want[0])
				}
				return err
			},
			s: publish.Selection{Set: "caasp-1"},
		},
		"listed before":        {add: func(r *rig, p *publish.Publisher) error { return r.addListed(p, want...) }, s: publish.Selection{Set: "caasp-1"}},
		"with --all":           {s: publish.Selection{All: true}},
		"all of it is named":   {s: publish.Selection{Images: want}},
		"one of it is named":   {s: publish.Selection{Images: want[:1]}, kind: publish.KindSet, text: `it is in set "caasp-1" together with HOST/velum:` + build(1)},
		"its repository":       {s: publish.Selection{Images: []string{"etcd"}}, kind: publish.KindSet, text: "together with HOST/velum:" + build(1)},
		"a part is withdrawn":  {then: func(r *rig, p *publish.Publisher) { r.gone(p, "stage", want[1]) }, s: publish.Selection{Set: "caasp-1"}, kind: publish.KindWithdrawn, text: want[1]},
		"withdrawn, and --all": {then: func(r *rig, p *publish.Publisher) { r.gone(p, "stage", want[1]) }, s: publish.Selection{All: true}, kind: "skipped"},
		"nobody can tell": {
			then: func(r *rig, _ *publish.Publisher) { r.remove("stage-v00000002") },
			s:    publish.Selection{Set: "caasp-1"}, kind: publish.KindSet, text: "does not list HOST/velum:" + build(1),
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.publisher(nil)
			r.begin(p, "stage", "prod")
			if c.add == nil {
				c.add = func(r *rig, p *publish.Publisher) error {
					_, err := r.addSet(p, "stage", "caasp-1", want...)
					return err
				}
			}
			require.NoError(t, c.add(r, p))
			if c.then != nil && c.text == want[1] {
				c.then(r, p) // while it is on its page
			}
			var images []string
			for n := range newer {
				images = append(images, "velum:"+build(n+2))
			}
			r.lists(p, "stage", "", images...)
			if c.then != nil && c.text != want[1] {
				c.then(r, p)
			}
			_, err := r.promote(r.publisher(nil), c.s, &catalog.Rollout{From: noon, Hours: 48})
			prod := map[string]*catalog.Release{}
			for _, image := range want {
				prod[image] = r.release(p, "prod", image)
			}
			switch c.kind {
			case "":
				require.NoError(t, err)
				for _, image := range want {
					require.NotNil(t, prod[image], image)
					assert.Equal(t, "caasp-1", prod[image].Set)
					assert.Equal(t, r.members(want...), prod[image].Members, image)
					assert.Equal(t, &catalog.Rollout{From: noon, Hours: 48}, prod[image].Rollout)
				}
				return
			case "skipped":
				require.NoError(t, err)
				assert.Len(t, r.listed(p, "prod", "velum"), 1)
			default:
				assert.Equal(t, c.kind, kindOf(err), "%v", err)
				require.ErrorContains(t, err, strings.ReplaceAll(c.text, "HOST", r.host))
				assert.Empty(t, r.listed(p, "prod", "velum"))
			}
			assert.Nil(t, prod[want[0]])
			assert.Nil(t, prod[want[1]])
		})
	}
}

// A release of two sets is promoted once, with the set that the channel gives it: the later one, whatever its name.
func TestAReleaseOfTwoSetsIsPromotedOnce(t *testing.T) {
	t.Parallel()
	for _, sets := range [][2]string{{"caasp-1", "caasp-2"}, {"caasp-2", "caasp-1"}} {
		t.Run(sets[1]+" is later", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.publisher(nil)
			r.begin(p, "stage", "prod")
			r.lists(p, "stage", sets[0], "etcd:"+build(1), "velum:"+build(1))
			r.lists(p, "stage", sets[1], "velum:"+build(1))
			_, err := r.promote(r.publisher(nil), publish.Selection{All: true}, nil)
			require.NoError(t, err)
			for image, set := range map[string]string{"etcd:" + build(1): sets[0], "velum:" + build(1): sets[1]} {
				assert.Equal(t, set, r.release(p, "prod", image).Set, image)
			}
			assert.Equal(t, r.members("etcd:"+build(1), "velum:"+build(1)), r.release(p, "prod", "etcd:"+build(1)).Members)
		})
	}
}

// A release that was added to a later set stays a member of the earlier one, also where no release is left that names
// the earlier one. A set of which nothing is listed any more has ended.
func TestAnEarlierSetKeepsWhatIsInALaterOne(t *testing.T) {
	t.Parallel()
	type add struct {
		set    string
		images []string
	}
	etcd, velum, more := "etcd:"+build(1), "velum:"+build(1), "pause:"+build(1)
	var newer []string
	for n := range catalog.Kept {
		newer = append(newer, "etcd:"+build(n+2))
	}
	for title, c := range map[string]struct {
		adds  []add
		after func(r *rig)
		want  []string
	}{
		"its only release": {adds: []add{{"a", []string{etcd}}, {"b", []string{etcd}}, {"a", []string{velum}}}, want: []string{etcd, velum}},
		"all its releases": {
			adds: []add{{"a", []string{etcd, velum}}, {"b", []string{velum, etcd}}, {"a", []string{more}}}, want: []string{etcd, more, velum},
		},
		"one after the other": {
			adds: []add{{"a", []string{etcd}}, {"b", []string{etcd}}, {"a", []string{velum}}, {"c", []string{velum}}, {"a", []string{more}}},
			want: []string{etcd, more, velum},
		},
		"and back": {
			adds: []add{{"a", []string{etcd}}, {"b", []string{etcd}}, {"a", []string{etcd}}, {"a", []string{velum}}}, want: []string{etcd, velum},
		},
		"its ops are deleted": {
			adds:  []add{{"a", []string{etcd}}, {"b", []string{etcd}}, {"a", []string{velum}}},
			after: func(r *rig) { r.removeOps("stage") }, want: []string{etcd, velum},
		},
		"one is on no page": {
			adds: []add{{"a", []string{etcd, velum}}, {"b", []string{etcd, velum}}, {"", newer}, {"a", []string{more}}},
			want: []string{etcd, more, velum},
		},
		"none is on a page": {adds: []add{{"a", []string{etcd}}, {"", newer}, {"a", []string{more}}}, want: []string{more}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.begin(r.publisher(nil), "stage", "prod")
			for _, a := range c.adds {
				r.lists(r.publisher(nil), "stage", a.set, a.images...)
				if c.after != nil {
					c.after(r)
				}
			}
			_, err := r.promote(r.publisher(nil), publish.Selection{Set: "a"}, nil)
			require.NoError(t, err)
			for _, image := range c.want {
				is := r.release(r.publisher(nil), "prod", image)
				require.NotNil(t, is, image)
				assert.Equal(t, r.members(c.want...), is.Members, image)
			}
		})
	}
}

// addListed adds images without a set, and then in one.
func (r *rig) addListed(p *publish.Publisher, images ...string) error {
	if _, err := r.addSet(p, "stage", "", images...); err != nil {
		return err
	}
	_, err := r.addSet(p, "stage", "caasp-1", images...)
	return err
}

func (r *rig) gone(p *publish.Publisher, channel, image string) {
	require.NoError(r.t, r.withdraw(p, channel, publish.Withdrawal{Images: []string{image}}))
}

// What is listed already is a part of the set that it is added to, whoever has listed it how.
func TestAddRecordsTheSet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage", "prod")
	r.lists(p, "stage", "", "velum:"+build(1))
	got := r.lists(p, "stage", "caasp-1", "velum:"+build(1), "etcd:"+build(1))
	assert.True(t, got.Outcomes[0].Changed)
	assert.Equal(t, `listed already, in no set, and now in set "caasp-1"`, got.Outcomes[0].Note)
	for range 2 {
		got = r.lists(p, "stage", "caasp-1", "velum:"+build(1), "etcd:"+build(1))
		assert.False(t, got.Changed)
	}
	_, err := r.promote(p, publish.Selection{Set: "caasp-1"}, &catalog.Rollout{From: noon, Hours: 48})
	require.NoError(t, err)
	// The next set has one release that did not change. Its rollout goes on.
	for _, channel := range []string{"stage", "prod"} {
		got = r.lists(p, channel, "caasp-2", "velum:"+build(1), "etcd:"+build(2))
		assert.True(t, got.Outcomes[0].Changed)
		is := r.release(p, channel, "velum:"+build(1))
		assert.Equal(t, "caasp-2", is.Set)
		assert.Equal(t, r.members("etcd:"+build(2), "velum:"+build(1)), is.Members)
		assert.Equal(t, channel == "prod", is.Rollout != nil)
	}
	// The first set is still whole, and the second is promoted upon it.
	for n, set := range []string{"caasp-1", "caasp-2"} {
		_, err = r.promote(p, publish.Selection{Set: set}, nil)
		require.NoError(t, err)
		etcd := r.release(p, "prod", "etcd:"+build(n+1))
		assert.Equal(t, r.members("etcd:"+build(n+1), "velum:"+build(1)), etcd.Members)
		assert.Equal(t, set, r.release(p, "prod", "velum:"+build(1)).Set)
	}
	r.gone(p, "stage", "velum:"+build(1))
	_, err = r.addSet(p, "stage", "caasp-3", "velum:"+build(1), "etcd:"+build(3))
	assert.Equal(t, publish.KindWithdrawn, kindOf(err), "%v", err)
	assert.Nil(t, r.release(p, "stage", "etcd:"+build(3)), "none of it")
	got = r.lists(p, "stage", "", "velum:"+build(1))
	assert.Equal(t, "withdrawn: bsc#1", got.Outcomes[0].Note)
}

// A hole that is found late: nobody lists the release any more, and nodes run it.
func TestWhatFellOffItsPageIsWithdrawnAndPromoted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage", "prod")
	var images []string
	for n := range 40 {
		images = append(images, "velum:"+build(n))
	}
	r.lists(p, "stage", "", images[:20]...)
	r.lists(p, "prod", "", images[3:23]...)
	for _, channel := range []string{"stage", "prod"} {
		r.lists(p, channel, "", images[20:]...)
		require.Nil(t, r.release(p, channel, images[3]))
	}
	later := r.publisher(nil)
	_, err := r.promote(later, publish.Selection{Images: []string{images[1]}}, nil)
	require.NoError(t, err, "older than what the page keeps")
	require.NoError(t, r.withdraw(later, "prod", publish.Withdrawal{Images: []string{images[3]}, Instead: []string{build(39)}}))
	is := r.release(later, "prod", images[3])
	require.NotNil(t, is)
	assert.Equal(t, "bsc#1", is.Withdrawn.Reason)
	assert.Equal(t, build(39), is.Withdrawn.To)

	// One that no version lists is taken with its digest only.
	assert.Equal(t, publish.KindImage, kindOf(r.withdraw(later, "prod", publish.Withdrawal{Images: []string{images[1]}})))
	d := r.push("velum", images[1], build(1))
	other := "sha256:" + strings.Repeat("0", 64)
	assert.Equal(t, publish.KindImage, kindOf(r.withdraw(later, "prod", publish.Withdrawal{Images: []string{images[1] + "@" + other}})))
	assert.Equal(t, publish.KindDigest, kindOf(r.withdraw(later, "prod", publish.Withdrawal{Images: []string{images[39] + "@" + other}})))
	assert.Equal(t, publish.KindInput, kindOf(r.withdraw(later, "prod", publish.Withdrawal{Images: []string{images[39] + "@" + other[1:]}})))
	require.NoError(t, r.withdraw(later, "prod", publish.Withdrawal{Images: []string{images[1] + "@" + d}}))
	assert.NotNil(t, r.release(later, "prod", images[1]).Withdrawn)

	// A prod that lists few is offered what stage lists no more.
	r.begin(later, "test")
	chosen, err := selected(t.Context(), later, "stage", "test", publish.Selection{Images: []string{images[1]}})
	require.NoError(t, err)
	require.Len(t, chosen.Changes, 1)
	r.does(later, "test", promoted(chosen.Changes...), publish.How{})
	assert.NotNil(t, r.release(later, "test", images[1]))
	_, err = selected(t.Context(), later, "stage", "test", publish.Selection{Images: []string{"velum:" + build(77) + "@" + d}})
	assert.Equal(t, publish.KindImage, kindOf(err), "stage never listed it: %v", err)
}

func TestASetIsWithdrawnAsAWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "prod")
	r.lists(p, "prod", "caasp-1", "velum:"+build(1), "etcd:"+build(1))
	var newer []string
	for n := range 40 {
		newer = append(newer, "velum:"+build(n+2))
	}
	r.lists(p, "prod", "", append(newer, "etcd:"+build(2))...)
	for text, w := range map[string]publish.Withdrawal{
		"has no such set, did you mean caasp-1?":   {Set: "caasp-2"},
		"for several images, want REPOSITORY:TAG":  {Set: "caasp-1", Instead: []string{build(2)}},
		"cannot replace itself":                    {Set: "caasp-1", Instead: []string{"etcd:" + build(1)}},
		"no release of this image":                 {Images: []string{"etcd:" + build(1)}, Instead: []string{"velum:" + build(41)}},
		"--instead names " + build(2) + " already": {Set: "caasp-1", Instead: []string{"etcd:" + build(2), "etcd:" + build(3)}},
		"the tag is missing: want IMAGE:TAG, did ": {Images: []string{"etcd"}},
	} {
		require.ErrorContains(t, r.withdraw(p, "prod", w), text)
	}
	require.NoError(t, r.withdraw(p, "prod", publish.Withdrawal{Set: "caasp-1", Instead: []string{"velum:" + build(41), "etcd:" + build(2)}}))
	for image, to := range map[string]string{"velum": build(41), "etcd": build(2)} {
		is := r.release(p, "prod", image+":"+build(1))
		require.NotNil(t, is, image)
		require.NotNil(t, is.Withdrawn, image)
		assert.Equal(t, to, is.Withdrawn.To)
		assert.Equal(t, "caasp-1", is.Set)
	}
}

// beforeOp calls a function before the first op is stored.
type beforeOp func()

func (do beforeOp) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/op-") {
		do()
	}
	return http.DefaultTransport.RoundTrip(r)
}

// Two jobs put a release into two sets at once, and one of them is told.
func TestTwoSetsForOneReleaseAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begin(r.publisher(nil), "stage")
	slow := r.publisher(func(o *publish.Options) {
		o.Store.Transport = beforeOp(sync.OnceFunc(func() {
			_, err := r.addSet(r.publisher(nil), "stage", "caasp-1", "velum:"+build(1))
			assert.NoError(t, err)
		}))
	})
	_, err := r.addSet(slow, "stage", "caasp-2", "velum:"+build(1))
	assert.Equal(t, publish.KindRaced, kindOf(err), "%v", err)
	assert.Equal(t, "caasp-1", r.release(r.publisher(nil), "stage", "velum:"+build(1)).Set)
	r.lists(r.publisher(nil), "stage", "caasp-2", "velum:"+build(1))
	assert.Equal(t, "caasp-2", r.release(r.publisher(nil), "stage", "velum:"+build(1)).Set)
}

// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// pairs is a catalog whose channel prod publishers change at once, and what must hold of it.
type pairs struct {
	base        *memory
	sight       *sight
	reader      *publish.Publisher // of all runs: what a digest names stays
	key, public []byte
	signer      *publish.Key
	first       uint64 // the version of prod that they find
	log         int    // the entries of its log
}

// act is what a verb has come to.
type act struct {
	by  string
	got publish.Result
	err error
}

// verb is a verb with its flags.
type verb struct {
	name string
	do   func(ctx context.Context, p *publish.Publisher) (publish.Result, error)
}

const images = "registry.example.com/"

func releaseOf(image string, n int, set string) catalog.Change {
	return catalog.Change{Image: images + image, Release: catalog.Release{
		Tag: build(n), Digest: digest.FromString(image + build(n)), Created: noon, Set: set,
	}}
}

func noted(c catalog.Change) catalog.Change {
	c.Release.Advisory = &catalog.Advisory{Severity: catalog.SeverityImportant, Fixes: []string{"CVE-2026-1234"}}
	return c
}

// changing are the verbs that change prod, each with its flags.
func changing() []verb {
	change := func(do publish.Verb) func(context.Context, *publish.Publisher) (publish.Result, error) {
		return func(ctx context.Context, p *publish.Publisher) (publish.Result, error) {
			return p.Change(ctx, "prod", do, publish.How{})
		}
	}
	promote := func(o publish.Promotion) func(context.Context, *publish.Publisher) (publish.Result, error) {
		return func(ctx context.Context, p *publish.Publisher) (publish.Result, error) {
			stage, err := p.Offer(ctx, "stage")
			if err != nil {
				return publish.Result{}, err
			}
			return p.Change(ctx, "prod", publish.Promote(stage, o), publish.How{})
		}
	}
	only := func(words ...string) publish.Selection { return publish.Selection{Images: words} }
	rollout := &catalog.Rollout{From: noon, Hours: 72}
	add := func(set string, all ...catalog.Change) func(context.Context, *publish.Publisher) (publish.Result, error) {
		return change(publish.Ask(ops.Want{Do: catalog.ActionAdd, Changes: all}))
	}
	return []verb{
		{"add --note", add("", noted(releaseOf("velum", 7, "")))},
		{"add --set", add("t", releaseOf("velum", 8, "t"), releaseOf("etcd", 8, "t"))},
		{"add what is listed --set", add("t", releaseOf("velum", 2, "t"))},
		{"promote --all", promote(publish.Promotion{Selection: publish.Selection{All: true}, Keep: true})},
		{"promote --all --rollout", promote(publish.Promotion{Selection: publish.Selection{All: true}, Rollout: rollout, Keep: true})},
		{"promote --set", promote(publish.Promotion{Selection: publish.Selection{Set: "s"}, Keep: true})},
		{"promote IMAGE", promote(publish.Promotion{Selection: only("salt:" + build(2)), Keep: true})},
		{"promote IMAGE --now", promote(publish.Promotion{Selection: only("velum:" + build(2))})},
		{"promote IMAGE --withdrawn", promote(publish.Promotion{Selection: publish.Selection{Images: []string{"salt:" + build(1)}, Withdrawn: true}})},
		{"promote --all --soaked", promote(publish.Promotion{Selection: publish.Selection{All: true, Soaked: time.Hour}, Keep: true})},
		{"promote --revert", change(publish.Revert(0, ""))},
		{"promote prod@2 --revert", change(publish.Revert(2, ""))},
		{"withdraw", change(publish.Withdraw(publish.Withdrawal{Images: []string{"velum:" + build(2)}, Reason: "bsc#1"}))},
		{"withdraw --instead", change(publish.Withdraw(publish.Withdrawal{
			Images: []string{"velum:" + build(2)}, Reason: "bsc#2", Instead: []string{build(1)},
		}))},
		{"withdraw --set", change(publish.Withdraw(publish.Withdrawal{Set: "old", Reason: "bsc#3"}))},
		{"rollout --pause", change(publish.Roll(publish.Selection{}, publish.Steer{Pause: true}))},
		{"rollout --resume", change(publish.Roll(only("etcd"), publish.Steer{Resume: true}))},
		{"rollout --over", change(publish.Roll(only("velum"), publish.Steer{Hours: 96}))},
		{"rollout --now", change(publish.Roll(publish.Selection{}, publish.Steer{Now: true}))},
		{"refresh --expires", change(publish.Refresh(noon.Add(90 * 24 * time.Hour)))},
		{"refresh", change(publish.Settle)},
		{"freeze", change(publish.Freeze(noon.Add(10 * 24 * time.Hour)))},
		{"unfreeze", change(publish.Freeze(time.Time{}))},
		{"note", change(publish.Note([]string{"velum:" + build(2)}, publish.Noted{Note: new("known a day later")}))},
		{"prune", func(ctx context.Context, p *publish.Publisher) (publish.Result, error) {
			_, err := p.Prune(ctx, "prod", publish.Pruning{Keep: 1})
			return publish.Result{}, err
		}},
	}
}

// sight is what a reader looks at.
type sight struct{ *memory }

// newPairs makes the catalog: prod has a release whose rollout is under way and one whose rollout is paused, a set, and a
// withdrawn release; stage has more.
func newPairs(t *testing.T) *pairs {
	t.Helper()
	x := &pairs{base: newMemory()}
	x.key, x.public = newKey(t)
	x.signer = parsedKey(t, x.key)
	x.sight = &sight{x.base}
	x.reader = x.publisher("reader", x.sight, noon)
	p := x.publisher("root", x.base, noon.Add(-72*time.Hour))
	do := func(channel string, do publish.Verb) {
		t.Helper()
		_, err := p.Change(t.Context(), channel, do, publish.How{New: channel == "stage" && len(x.base.tags) == 0})
		require.NoError(t, err)
	}
	for _, channel := range []string{"stage", "prod"} {
		_, err := p.Change(t.Context(), channel, publish.Refresh(time.Time{}), publish.How{New: true})
		require.NoError(t, err)
	}
	old := []catalog.Change{releaseOf("velum", 1, "old"), releaseOf("etcd", 1, "old")}
	do("stage", added(old...))
	do("prod", added(append(old, releaseOf("salt", 1, ""))...))
	do("stage", added(releaseOf("velum", 2, ""), releaseOf("salt", 1, ""), releaseOf("etcd", 2, "")))
	under, paused := releaseOf("velum", 2, ""), releaseOf("etcd", 2, "")
	under.Release.Rollout = &catalog.Rollout{From: noon.Add(-time.Hour), Hours: 48}
	is := catalog.Rollout{From: noon.Add(-2 * time.Hour), Hours: 48}.Pause(noon.Add(-time.Hour))
	paused.Release.Rollout = &is
	do("prod", promoted(under, paused))
	do("stage", publish.Note([]string{"velum:" + build(2)}, publish.Noted{Severity: new(catalog.SeverityLow)}))
	do("prod", publish.Withdraw(publish.Withdrawal{Images: []string{"salt:" + build(1)}, Reason: "bsc#0"}))
	do("stage", added(releaseOf("velum", 3, "s"), releaseOf("etcd", 3, "s"), noted(releaseOf("salt", 2, ""))))
	_, v, log := x.state(t, x.base)
	x.first, x.log = v.Version, len(log)
	return x
}

// again returns the catalog with a reader of its own.
func (x *pairs) again() *pairs {
	out := *x
	out.sight = &sight{x.base}
	out.reader = out.publisher("reader", out.sight, noon)
	return &out
}

// publisher is one process of a publisher.
func (x *pairs) publisher(by string, r publish.Registry, now time.Time) *publish.Publisher {
	p, err := publish.New(publish.Options{
		Repository: memoryRepository, Keys: []*publish.Key{x.signer}, Registry: r, By: by, Jobs: 1,
		Now: func() time.Time { return now },
	})
	if err != nil {
		panic(err)
	}
	return p
}

func (x *pairs) read(t require.TestingT, m *memory) publish.Version {
	x.sight.memory = m
	v, err := x.reader.Read(context.Background(), "prod")
	require.NoError(t, err)
	return v
}

// isWhole checks that the registry has all that a version names. Their content is checked at the end of a story: to decode
// it after each verb took more time than the verbs.
func (x *pairs) isWhole(t require.TestingT, m *memory, v publish.Version) {
	for _, ref := range append(v.Log, v.Ops) {
		assert.True(t, ref.Digest == "" || m.blobs[ref.Digest] != nil, "version %d: blob %s", v.Version, ref.Digest)
	}
	for _, ref := range v.Pages {
		assert.NotNil(t, m.blobs[ref.Digest], "version %d: page of %s", v.Version, ref.Image)
	}
}

// state is the content of prod as a reader finds it, and its log.
func (x *pairs) state(t require.TestingT, m *memory) (ops.State, publish.Version, []catalog.Entry) {
	v := x.read(t, m)
	log, err := x.reader.Log(context.Background(), v)
	require.NoError(t, err)
	pages, err := x.reader.Pages(context.Background(), v)
	require.NoError(t, err)
	return ops.State{Pages: pages, Times: v.Times}, v, log
}

// offered are the releases that prod offers, with their rollouts.
func offered(s ops.State) map[string]string {
	out := map[string]string{}
	for image, page := range s.Pages {
		for _, r := range page.Releases {
			if r.Withdrawn == nil {
				out[catalog.Member(image, r.Tag)] = ops.Steered(catalog.Release{Rollout: &catalog.Rollout{}}, catalog.Release{Set: r.Set, Rollout: r.Rollout})
			}
		}
	}
	return out
}

// story is one run: who did what, and prod in between.
type story struct {
	x     *pairs
	title string
	acts  []act
	seen  []publish.Version // as a node polled it
	froze map[string]string // what prod offered when somebody had frozen it; nil: nobody has
}

// after notes what a verb has come to.
func (s *story) after(t require.TestingT, m *memory, verb string, a act) {
	s.acts = append(s.acts, a)
	v := s.x.read(t, m)
	s.seen = append(s.seen, v)
	s.x.isWhole(t, m, v)
	if a.err == nil && verb == "freeze" {
		is, _, _ := s.x.state(t, m)
		s.froze = offered(is)
	}
	if a.err == nil && verb == "unfreeze" {
		s.froze = nil
	}
}

// check checks what must hold of prod at the end.
func (s *story) check(t require.TestingT, m *memory) {
	is, v, log := s.x.state(t, m)
	assert.GreaterOrEqual(t, len(log), s.x.log, "the log grows: %s", s.title)
	s.checkAsked(t, is, log)
	s.checkWithdrawn(t, is, log)
	s.checkSets(t, is)
	s.checkNode(t, v)
	if s.froze != nil && ops.IsFrozen(is.Times, noon) {
		for member, how := range offered(is) {
			was, there := s.froze[member]
			assert.True(t, there && (was == how || strings.Contains(how, "paused")), "frozen, and moved: %s: %s", member, s.title)
		}
	}
	for tag := range m.tags {
		channel, n, isVersion := catalog.ParseVersionTag(tag)
		if isVersion && channel == "prod" {
			_, err := s.x.reader.ReadVersion(context.Background(), "prod", n)
			if !isKilledVersion(s.acts, err) {
				assert.NoError(t, err, "%s: %s", tag, s.title)
			}
		}
	}
}

// isKilledVersion reports whether a version has no signature because its publisher was killed before it had signed it.
func isKilledVersion(acts []act, err error) bool {
	return kindOf(err) == publish.KindUnsigned && slices.ContainsFunc(acts, func(a act) bool { return errors.Is(a.err, errKilled) })
}

// checkAsked checks that what was reported as done is in the log, and holds, or is named in an output.
func (s *story) checkAsked(t require.TestingT, is ops.State, log []catalog.Entry) {
	for _, a := range s.acts {
		if a.err != nil || !a.got.Changed {
			continue
		}
		found := false
		for _, e := range log {
			if e.By != a.by {
				continue
			}
			found = true
			for _, l := range ops.Lost(is, e.Op) {
				isLater := slices.ContainsFunc(log, func(later catalog.Entry) bool { return later.Tag == l.By && later.Turn > e.Turn })
				if isLater {
					continue // somebody who knew it has changed it since
				}
				assert.True(t, s.names(e.Tag, l), "%s: %s: %s %s is not as asked, and nobody says so: %s",
					s.title, a.by, l.Change.Member(), l.Why, l.By)
			}
		}
		changed := slices.ContainsFunc(a.got.Outcomes, func(o publish.Outcome) bool { return o.Changed })
		assert.True(t, found || !changed, "%s: the log does not have what %s has asked for", s.title, a.by)
	}
}

// names reports whether an output names an op that was overtaken, or the release that is not as it asked.
func (s *story) names(op string, l ops.Loss) bool {
	for _, a := range s.acts {
		for _, other := range a.got.Others {
			if other.Op == op || other.Op == l.By {
				return true
			}
		}
		for _, o := range a.got.Outcomes {
			if catalog.Member(o.Image, o.Tag) == l.Change.Member() && o.Note != "" && !o.Changed {
				return true
			}
		}
	}
	return false
}

// checkWithdrawn checks that nothing withdrawn is offered, but by an op that says so and that came later.
func (s *story) checkWithdrawn(t require.TestingT, is ops.State, log []catalog.Entry) {
	for _, e := range log {
		if e.Do != catalog.ActionWithdraw {
			continue
		}
		for _, c := range e.Changes {
			r := ops.Find(is.Pages[c.Image], c.Release.Tag)
			isAgain := slices.ContainsFunc(log, func(later catalog.Entry) bool {
				return later.Again && later.Mark().Compare(e.Mark()) > 0 && slices.ContainsFunc(later.Changes, func(o catalog.Change) bool {
					return o.Member() == c.Member()
				})
			})
			assert.True(t, r != nil && (r.Withdrawn != nil || isAgain), "%s: %s was withdrawn, and is offered", s.title, c.Member())
		}
	}
}

// checkSets checks that the members of each set are listed.
func (s *story) checkSets(t require.TestingT, is ops.State) {
	for image, page := range is.Pages {
		for _, r := range page.Releases {
			for _, member := range r.Members {
				of, tag := catalog.SplitMember(member)
				assert.NotNil(t, ops.Find(is.Pages[of], tag), "%s: %s of the set of %s:%s is not listed", s.title, member, image, r.Tag)
			}
		}
	}
}

// checkNode checks that a node that has seen each version takes the next one.
func (s *story) checkNode(t require.TestingT, last publish.Version) {
	known, pages := catalog.Known{Version: s.x.first}, []catalog.PageRef(nil)
	for _, v := range append(s.seen, last) {
		if v.Version == s.x.first || v.Version == known.Version && v.Digest == known.Digest {
			continue
		}
		if v.Version == known.Version && slices.Equal(v.Pages, pages) {
			continue // the node notes it, and has what the other one offers
		}
		pages = v.Pages
		err := v.Follows(known, v.Digest, memoryRepository, "prod", noon)
		assert.NoError(t, err, "%s: a node refuses version %d after %d", s.title, v.Version, known.Version)
		known = catalog.Known{Version: v.Version, Digest: v.Digest}
	}
}

// isRefusal reports whether a verb may end so beside another one: what it wants cannot be any more, and it says so.
func isRefusal(err error) bool {
	return slices.Contains([]publish.Kind{
		publish.KindAgain, publish.KindWithdrawn, publish.KindFrozen, publish.KindImage, publish.KindSet, publish.KindRaced,
	}, kindOf(err))
}

// beside stops A before its n-th request, has B run whole, and lets A go on, or kills it and lets C complete the channel.
// It reports whether A has come to that request.
func (x *pairs) beside(t *testing.T, a, b verb, n int, kills bool) bool {
	m := x.base.clone()
	ctx := t.Context()
	s := &story{x: x}
	stop := &stopped{memory: m, at: n, kills: kills}
	stop.do = func() {
		got, err := b.do(ctx, x.publisher("B", m, noon))
		s.title = fmt.Sprintf("%s stopped before request %d, %s; %s runs", a.name, n, stop.what, b.name)
		if err != nil {
			assert.True(t, isRefusal(err), "%s: B: %v", s.title, err)
		}
		s.after(t, m, b.name, act{"B", got, err})
	}
	got, err := a.do(ctx, x.publisher("A", stop, noon))
	if stop.what == "" {
		return false
	}
	s.after(t, m, a.name, act{"A", got, err})
	switch {
	case kills:
		assert.ErrorIs(t, err, errKilled, s.title)
		s.title += ", A is killed"
		got, err := x.publisher("C", m, noon).Change(ctx, "prod", publish.Settle, publish.How{})
		assert.NoError(t, err, s.title)
		s.after(t, m, "refresh", act{"C", got, err})
	case err != nil:
		assert.True(t, isRefusal(err), "%s: A: %v", s.title, err)
	}
	s.check(t, m)
	return true
}

// Every pair of verbs, at every request: A is stopped before each of its requests, B runs whole, A goes on; and A is
// killed there, and C completes what it has left.
func TestEveryPairOfVerbsAtEveryRequest(t *testing.T) {
	t.Parallel()
	x := newPairs(t)
	step := 17 // every request of each verb is among those of its pairs
	if os.Getenv("IUA_ROUNDS") != "" {
		step = 1
	}
	var runs atomic.Int64
	t.Cleanup(func() { t.Logf("%d runs of %d pairs", runs.Load(), len(changing())*len(changing())) })
	for n, a := range changing() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			x := x.again()
			synctest.Test(t, func(t *testing.T) {
				for m, b := range changing() {
					for _, kills := range []bool{false, true} {
						at := 1 + (31*n+17*m)%step
						for ; !t.Failed() && x.beside(t, changing()[n], b, at, kills); at += step {
							runs.Add(1)
						}
						require.Less(t, at, 400, "%s, %s", a.name, b.name)
					}
				}
			})
		})
	}
}

// Three publishers at once, each stopped at random for the next one: IUA_ROUNDS rounds with the seed IUA_SEED.
func TestThreePublishersAtRandomRequests(t *testing.T) {
	t.Parallel()
	x := newPairs(t)
	seed, _ := strconv.ParseUint(os.Getenv("IUA_SEED"), 10, 64)
	rounds, _ := strconv.ParseUint(os.Getenv("IUA_ROUNDS"), 10, 64)
	seed = cmp.Or(seed, 1)
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 2))
		for round := range cmp.Or(rounds, 300) {
			m := x.base.clone()
			s := &story{x: x, title: fmt.Sprintf("seed %d, round %d:", seed, round)}
			x.nested(t, random, s, m, 0)
			_, err := x.publisher("C", m, noon).Change(t.Context(), "prod", publish.Settle, publish.How{})
			require.NoError(t, err, s.title)
			s.check(t, m)
			require.False(t, t.Failed())
		}
	})
}

// nested runs a verb at random, and before one of its requests another publisher's.
func (x *pairs) nested(t *testing.T, random *rand.Rand, s *story, m *memory, depth int) {
	all := changing()
	is := all[random.IntN(len(all))]
	by := string(rune('X' + depth))
	stop := &stopped{memory: m, at: 1 + random.IntN(30), kills: random.IntN(4) == 0}
	if depth < 2 {
		stop.do = func() { x.nested(t, random, s, m, depth+1) }
	}
	got, err := is.do(t.Context(), x.publisher(by, stop, noon))
	s.title += fmt.Sprintf(" %s %s (stopped at %d, %s, killed %t, %v)", by, is.name, stop.at, stop.what, stop.kills, err)
	if err != nil {
		assert.True(t, isRefusal(err) || errors.Is(err, errKilled), "%s: %v", s.title, err)
	}
	s.after(t, m, is.name, act{by, got, err})
}

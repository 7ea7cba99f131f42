// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
)

// inSetOf lists a release in a set, with the members of the set.
func inSetOf(set string, members ...release.Release) func(*format.Release) {
	return func(l *format.Release) {
		l.Set = set
		for _, m := range members {
			l.Members = append(l.Members, format.Member(m.Repository, m.Long))
		}
	}
}

// versionOf returns the number of the build that a container runs: "1.N".
func versionOf(w *agenttest.World, file, container string, releases map[string]int) int {
	c, ok := w.Node.Container(file, container)
	if !ok || !c.Running {
		return -1
	}
	return releases[string(c.Digests[0])]
}

// A pod of a set fails after another one came up: both are rolled back, and a later set is offered to both.
func TestFailedPodRollsItsSetBack(t *testing.T) {
	t.Parallel()
	for _, auto := range []bool{false, true} {
		for _, keep := range []int{0, 1} {
			run(t, fmt.Sprintf("auto %t, keep %d", auto, keep), func(t *testing.T) {
				w, one, two := setWorld(t)
				oneBefore, _ := w.Node.Container("velum.yaml", "velum")
				twoBefore, _ := w.Node.Container("db.yaml", "db")
				w.Policy.Order, w.Policy.Prune.Keep = []string{"db.yaml", "velum.yaml"}, keep
				w.restart()
				w.check()
				w.Node.Crash(one.Digest, true) // the second of the two
				var outcomes []status.Outcome
				if w.Policy.Auto = auto; auto {
					w.restart()
					w.check()
				} else {
					outcomes, _ = w.apply()
				}
				w.runs("velum.yaml", "velum", oneBefore.Digests[0])
				w.runs("db.yaml", "db", twoBefore.Digests[0])
				for _, o := range outcomes {
					if o.PodManifest == "db.yaml" {
						assert.Equal(t, status.ResultHeld, o.Result)
						assert.Equal(t, status.HoldSet, o.Hold)
						assert.Contains(t, o.Reason, "rolled back with its set caasp-4.5.2: velum.yaml")
					}
				}
				s := w.check()
				require.NotEmpty(t, podOf(s, "db.yaml").Holds)
				assert.Equal(t, status.HoldSet, podOf(s, "db.yaml").Holds[0].Name)
				assert.NotContains(t, w.Disk.JSON(), two.Digest.String()+`":{"at"`, "the other one is not denied")
				assert.Empty(t, w.record().Sets)
				out, _ := w.rollback("db.yaml")
				assert.Equal(t, status.ResultNothing, out[0].Result, "what was taken back is no rollback target")
				w.check()
				w.idle()

				next := w.Registry.Release(velum, "4.0.0", 1, "1.3")
				w.promote(next, inSetOf("caasp-4.5.3", next, two))
				w.Catalog.Update(two, inSetOf("caasp-4.5.3", next, two))
				w.check()
				if !auto {
					w.apply()
				}
				w.runs("velum.yaml", "velum", next.Digest)
				w.runs("db.yaml", "db", two.Digest)
			})
		}
	}
}

// The lock is refused between two pods of a set. The second follows when the lock is free, without another approval.
func TestSetWaitsForTheLockInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, auto := range []bool{false, true} {
		run(t, fmt.Sprintf("auto %t", auto), func(t *testing.T) {
			w, one, two := setWorld(t)
			w.Fleet = &agenttest.Fleet{}
			w.Policy.Lock = fleet.Lock{Pods: fleet.LockAll, Target: fleet.Target{Server: "https://lock", Group: "g"}, ID: "me"}
			w.restart()
			w.check()
			w.Node.OnAside = func(string) error { // the server loses the lock and grants it to another node
				w.Node.OnAside = nil
				w.Fleet.Drop("me")
				w.Fleet.Give("other")
				return nil
			}
			if w.Policy.Auto = auto; auto {
				w.restart()
				w.check()
			} else {
				w.apply()
			}
			w.runs("db.yaml", "db", two.Digest)
			require.Contains(t, w.record().Sets, "caasp-4.5.2")
			s := w.observe()
			assert.NotEqual(t, status.StateCurrent, s.State)
			w.Fleet.Drop("other")
			w.Clock.Add(time.Hour)
			s = w.observe()
			w.runs("velum.yaml", "velum", one.Digest)
			assert.Equal(t, status.StateCurrent, s.State, s.Reason)
			assert.Empty(t, w.record().Sets)
			assert.Empty(t, w.Fleet.Holders())
		})
	}
}

// If the lock is refused, or a tag cannot be resolved, no pod of the set restarts, whichever comes first.
func TestSetBeginsOnlyIfAllPodsCan(t *testing.T) {
	t.Parallel()
	for title, stop := range map[string]func(w *world){
		"lock of the last pod":         func(w *world) { w.Fleet.Give("other") },
		"registry of the last pod":     func(w *world) { w.Registry.Down(agenttest.ErrRefused) },
		"approval of one was for less": func(w *world) {},
	} {
		run(t, title, func(t *testing.T) {
			w, _, _ := setWorld(t)
			w.Fleet = &agenttest.Fleet{}
			w.Policy.Lock = fleet.Lock{Pods: fleet.LockAll, Target: fleet.Target{Server: "https://lock", Group: "g"}, ID: "me"}
			w.restart()
			w.check()
			velumWas, dbWas := w.Node.PodManifest("velum.yaml"), w.Node.PodManifest("db.yaml")
			stop(w)
			which := plan.All()
			if title == "approval of one was for less" {
				which = plan.Named("db.yaml")
			}
			out, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: which})
			require.NoError(t, err)
			for _, o := range out {
				assert.Equal(t, status.ResultHeld, o.Result, o.Reason)
			}
			assert.Equal(t, velumWas, w.Node.PodManifest("velum.yaml"))
			assert.Equal(t, dbWas, w.Node.PodManifest("db.yaml"))
			assert.Empty(t, w.record().Approved)
		})
	}
}

// The window closes, or the person leaves, between two pods of a set: the set is completed.
func TestSetIsCompletedOnceBegun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, one, two := setWorld(t)
		w.check()
		ctx, die := w.killable()
		n := 0
		w.Node.OnAside = func(string) error {
			if n++; n == 2 {
				die()
			}
			return nil
		}
		_, _, _ = w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
		w.Node.OnAside = nil
		w.Clock.Add(48 * time.Hour) // the approval is void by then
		w.restart()
		for range 3 {
			w.Node.Sync()
			w.observe()
		}
		w.runs("velum.yaml", "velum", one.Digest)
		w.runs("db.yaml", "db", two.Digest)
		assert.Empty(t, w.record().Sets)
	})
}

// A running set is withdrawn and rolled back as a whole.
func TestRunningSetIsWithdrawnAsAWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, one, two := setWorld(t)
		first := w.record()
		w.check()
		w.apply()
		out, _ := w.rollback("velum")
		assert.Equal(t, status.ResultHeld, out[0].Result)
		assert.Equal(t, status.HoldSet, out[0].Hold)
		assert.Contains(t, out[0].Reason, "caasp-4.5.2 is rolled back as a whole: also name db.yaml")
		w.runs("velum.yaml", "velum", one.Digest)

		w.Catalog.Withdraw(two, "it loses data", "")
		s := w.check()
		assert.True(t, s.Reasons[0].Kind.MustNotRun(), "the headline: %s", s.Reason)
		assert.Contains(t, s.Reason, "velum.yaml: 4.0.0-rev1-build1.2 is running but was withdrawn: its set caasp-4.5.2 contains")
		require.NotNil(t, image(s, "velum.yaml", "velum").Withdrawn)
		assert.Contains(t, image(s, "velum.yaml", "velum").Withdrawn.Reason, mariadb+":10.0-rev1-build1.2, which was withdrawn: it loses data")
		require.NotNil(t, image(s, "db.yaml", "db").Withdrawn)

		w.Policy.Catalog.AllowLower = true
		w.restart()
		w.check()
		w.apply()
		w.runs("velum.yaml", "velum", first.Good["velum.yaml/velum"].Running)
		w.runs("db.yaml", "db", first.Good["db.yaml/db"].Running)
	})
}

// One pod of a set has no rollback target: none of them is rolled back.
func TestSetIsRolledBackAsAWholeOrNotAtAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, one, two := setWorld(t)
		w.check()
		w.apply()
		r, err := w.Disk.Load(t.Context())
		require.NoError(t, err)
		key := record.GoodKey("db.yaml", "db")
		good := r.Good[key]
		good.Before = nil
		r.Good[key] = good
		require.NoError(t, w.Disk.Save(t.Context(), r))
		w.restart()
		for _, which := range []plan.Which{plan.All(), plan.Named("velum.yaml", "db.yaml")} {
			out, _, err := w.agent.Rollback(t.Context(), which)
			require.NoError(t, err)
			require.Len(t, out, 2)
			assert.Equal(t, status.ResultNothing, out[0].Result, "db.yaml")
			assert.Equal(t, status.ResultHeld, out[1].Result, "velum.yaml")
			assert.Contains(t, out[1].Reason, "is rolled back as a whole, but db.yaml has no previous release")
		}
		w.runs("velum.yaml", "velum", one.Digest)
		w.runs("db.yaml", "db", two.Digest)
	})
}

// Without the catalog the agent does not know which pods run one set: any bound pod may be part of it. A person can use
// --all.
func TestPodIsNotRolledBackAloneWhileSetsAreUnknown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, one, _ := setWorld(t)
		w.check()
		w.apply()
		require.NoError(t, w.Catalog.Forget(t.Context()))
		w.restart()
		out, _ := w.rollback("velum.yaml")
		require.Len(t, out, 1)
		assert.Equal(t, status.HoldSet, out[0].Hold)
		assert.Contains(t, out[0].Reason, "sets are unknown until "+agenttest.CatalogName+" is read: run check first, or also name db.yaml")
		w.runs("velum.yaml", "velum", one.Digest)

		out, _ = w.rollback("velum.yaml", "db.yaml")
		require.Len(t, out, 2)
		assert.Equal(t, status.ResultRolledBack, out[1].Result, out[1].Reason)
	})
}

// An approval of a set is for the digests of all its members.
func TestApprovalOfASetIsForAllItsDigests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, one, two := setWorld(t)
		w.check()
		apply := func(shown ...plan.Shown) error {
			_, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.All(), Expect: shown})
			return err
		}
		oneShown, twoShown := plan.Shown{Image: velum, Digest: one.Digest}, plan.Shown{Image: mariadb, Digest: two.Digest}
		moved, is := errors.AsType[*plan.MovedError](apply(oneShown))
		require.True(t, is)
		assert.Equal(t, mariadb, moved.Moved[0].Image)
		require.Error(t, apply(oneShown, plan.Shown{Image: mariadb, Digest: one.Digest}))
		assert.Empty(t, w.record().Approved)
		require.NoError(t, apply(oneShown, twoShown))
		w.runs("velum.yaml", "velum", one.Digest)
		w.runs("db.yaml", "db", two.Digest)
	})
}

// Whenever the power is cut in an apply of a set, after the next start all of the set runs, or none. The node boots
// before, with or without the agent's boot unit.
func TestPowerCutInASet(t *testing.T) {
	t.Parallel()
	for _, bad := range []bool{false, true} {
		for _, boots := range []bool{false, true} {
			for when, how := range map[string]powerCut{"before": {}, "after": {after: true}, "full": {full: true}} {
				run(t, fmt.Sprintf("bad %t/boots %t/%s", bad, boots, when), func(t *testing.T) {
					for at := 1; cutInASet(t, &powerCut{at: at, after: how.after, full: how.full}, bad, boots); at++ {
						require.Less(t, at, 200)
					}
				})
			}
		}
	}
}

func cutInASet(t *testing.T, cut *powerCut, bad, boots bool) bool {
	t.Helper()
	w, one, two := setWorld(t)
	is := map[string]int{string(one.Digest): 2, string(two.Digest): 2}
	w.check()
	w.Node.Crash(one.Digest, bad)
	if !w.dies(cut, func(a *agent.Agent) { _, _, _ = a.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}) }) {
		return false
	}
	if boots {
		w.reboot()
	} else {
		w.restart()
	}
	for range 4 {
		w.Clock.Add(10 * time.Minute)
		w.Node.Sync()
		w.observe()
	}
	a, b := versionOf(w.World, "velum.yaml", "velum", is), versionOf(w.World, "db.yaml", "db", is)
	require.Equal(t, a, b, "call %d: %s: half a set", cut.at, cut.where)
	require.GreaterOrEqual(t, a, 0, "call %d: %s", cut.at, cut.where)
	require.False(t, bad && a == 2)
	require.Empty(t, w.record().Sets, "call %d: %s", cut.at, cut.where)
	return true
}

// A person rolls a set back, and the server of the fleet lock grants the lock to another node between its two pods.
// Whatever the person does meanwhile, the rollback is completed when the lock is free.
func TestRollbackOfASetIsCompletedOnceBegun(t *testing.T) {
	t.Parallel()
	for title, meanwhile := range map[string]func(w *world){
		"nothing":                 func(*world) {},
		"a restart":               func(w *world) { w.restart() },
		"a reboot":                func(w *world) { w.reboot() },
		"all are held":            func(w *world) { w.hold(record.PersonHold{Reason: "wait"}) },
		"the node is busy":        func(w *world) { w.Grain.SetBusy("busy"); w.observe(); w.Grain.SetBusy("") },
		"an apply":                func(w *world) { w.apply() },
		"an apply with --retry":   func(w *world) { w.retry() },
		"--retry and a restart":   func(w *world) { w.retry(); w.restart() },
		"another rollback":        func(w *world) { w.rollback() },
		"a rollback of the first": func(w *world) { w.rollback("db.yaml") },
		"a rollback of the rest":  func(w *world) { w.rollback("velum.yaml") },
		"a newer set": func(w *world) {
			promoteSet(w, "caasp-4.5.4", "1.4")
			w.check()
			w.retry()
		},
	} {
		for _, auto := range []bool{false, true} {
			run(t, fmt.Sprintf("%s, auto %t", title, auto), func(t *testing.T) {
				w, one, two := setWorld(t)
				w.Policy.Prune.Keep = 2
				w.Fleet = &agenttest.Fleet{}
				w.Policy.Lock = fleet.Lock{Pods: fleet.LockAll, Target: fleet.Target{Server: "https://lock", Group: "g"}, ID: "me"}
				w.restart()
				w.check()
				w.apply()
				newOne, newTwo := promoteSet(w, "caasp-4.5.3", "1.3")
				w.check()
				w.apply()
				w.runs("velum.yaml", "velum", newOne.Digest)
				w.runs("db.yaml", "db", newTwo.Digest)
				w.Node.OnAside = func(string) error {
					w.Node.OnAside = nil
					w.Fleet.Drop("me")
					w.Fleet.Give("other")
					return nil
				}
				w.rollback()
				w.runs("db.yaml", "db", two.Digest)
				w.runs("velum.yaml", "velum", newOne.Digest)
				w.Policy.Auto = auto
				w.restart()

				meanwhile(w)

				w.Fleet.Drop("other")
				w.Policy.Auto = false
				w.restart()
				w.Clock.Add(time.Hour)
				w.observe()
				w.runs("velum.yaml", "velum", one.Digest)
				w.runs("db.yaml", "db", two.Digest)
			})
		}
	}
}

// The caller of a rollback of a set leaves while its first pod restarts: both return.
func TestRollbackOfASetContinuesWithoutItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := setWorld(t)
		before := w.record().Good
		w.check()
		w.apply()
		ctx, leave := context.WithCancel(t.Context())
		w.Node.OnAside = func(string) error { leave(); synctest.Wait(); return nil }
		l := startAgent(t, w, w.Agent(), 0, 0)
		out, err := l.Rollback(ctx, plan.All(), nil)
		require.NoError(t, err)
		for _, o := range out {
			assert.Equal(t, status.ResultContinues, o.Result, o.PodManifest)
		}
		pass(10 * time.Minute)
		w.runs("velum.yaml", "velum", before["velum.yaml/velum"].Running)
		w.runs("db.yaml", "db", before["db.yaml/db"].Running)
	})
}

// promoteSet lists the next set of velum and mariadb.
func promoteSet(w *world, set, build string) (one, two release.Release) {
	one, two = w.Registry.Release(velum, "4.0.0", 1, build), w.Registry.Release(mariadb, "10.0", 1, build)
	w.promote(one, inSetOf(set, one, two))
	w.promote(two, inSetOf(set, one, two))
	return one, two
}

// Whenever the power is cut in a person's rollback of a set, after the next start all of the set is rolled back, or
// none.
func TestPowerCutInARollbackOfASet(t *testing.T) {
	t.Parallel()
	for when, how := range map[string]powerCut{"before": {}, "after": {after: true}, "full": {full: true}} {
		run(t, when, func(t *testing.T) {
			for at := 1; cutInARollback(t, &powerCut{at: at, after: how.after, full: how.full}); at++ {
				require.Less(t, at, 200)
			}
		})
	}
}

func cutInARollback(t *testing.T, cut *powerCut) bool {
	t.Helper()
	w, one, two := setWorld(t)
	is := map[string]int{string(one.Digest): 2, string(two.Digest): 2}
	w.check()
	w.apply()
	if !w.dies(cut, func(a *agent.Agent) { _, _, _ = a.Rollback(t.Context(), plan.All()) }) {
		return false
	}
	w.restart()
	for range 4 {
		w.Clock.Add(10 * time.Minute)
		w.Node.Sync()
		w.observe()
	}
	a, b := versionOf(w.World, "velum.yaml", "velum", is), versionOf(w.World, "db.yaml", "db", is)
	require.Equal(t, a, b, "call %d: %s: half a set", cut.at, cut.where)
	require.GreaterOrEqual(t, a, 0, "call %d: %s", cut.at, cut.where)
	return true
}

// setHistory is a node with two pods whose releases are promoted as sets, with random events.
type setHistory struct {
	*agenttest.World
	t        *rapid.T
	agent    *agent.Agent
	versions map[string]int // by digest
	sets     [][2]release.Release
	bad      []release.Release
}

// inBubble makes rapid check a property in a bubble, so that no history waits: rapid would ask a testing.T for its
// deadline, which is not allowed there.
type inBubble struct{ rapid.TB }

// TestHistoriesOfSets applies random events to a node and asserts that it never settles with half a set.
func TestHistoriesOfSets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rapid.Check(inBubble{t}, func(t *rapid.T) {
			h := &setHistory{World: agenttest.NewWorld(), t: t, versions: map[string]int{}}
			h.begin()
			ops := h.ops()
			for range 30 {
				op := rapid.SampledFrom(ops).Draw(t, "op")
				t.Log(op.name)
				op.do()
				h.Node.Sync()
				h.Clock.Add(time.Second)
			}
			h.rest("the end")
		})
	})
}

func (h *setHistory) begin() {
	h.Policy.ApplyTimeout = time.Millisecond
	h.Policy.Rule = newWorldRule
	h.Policy.Prune.Keep = rapid.IntRange(0, 2).Draw(h.t, "keep")
	h.Policy.Order = rapid.SampledFrom([][]string{nil, {"velum.yaml"}}).Draw(h.t, "order")
	h.Fleet = &agenttest.Fleet{}
	h.Policy.Lock = fleet.Lock{Pods: fleet.LockAll, Target: fleet.Target{Server: "https://lock", Group: "g"}, ID: "me"}
	h.Catalog = agenttest.NewCatalog()
	h.promote(false)
	h.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	h.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":4.0.0"))
	h.agent = h.Agent()
	h.cycle(source.PollAll)
}

// promote lists the next set.
func (h *setHistory) promote(bad bool) {
	n := len(h.sets) + 1
	build := fmt.Sprint("1.", n)
	set := [2]release.Release{h.Registry.Release(velum, "4.0.0", 1, build), h.Registry.Release(mariadb, "4.0.0", 1, build)}
	h.sets = append(h.sets, set)
	for _, rel := range set {
		is := agenttest.ListedAs(rel)
		inSetOf(fmt.Sprint("set ", n), set[:]...)(&is)
		h.Catalog.Publish(rel.Repository, is)
		h.versions[string(rel.Digest)] = n
	}
	if bad {
		rel := set[rapid.IntRange(0, 1).Draw(h.t, "bad")]
		h.Node.Crash(rel.Digest, true)
		h.bad = append(h.bad, rel)
	}
}

func (h *setHistory) ops() []op {
	flag := func() bool { return rapid.Bool().Draw(h.t, "flag") }
	all := func(do func(ctx context.Context)) func() { return func() { do(h.t.Context()) } } //nolint:contextcheck // its own
	names := func() []string {
		return rapid.SampledFrom([][]string{{"velum.yaml"}, {"db.yaml"}, {velum, mariadb}}).Draw(h.t, "names")
	}
	return []op{
		{"promote", func() { h.promote(flag()) }},
		{"withdraw", func() {
			set := h.sets[len(h.sets)-1]
			h.Catalog.Withdraw(set[rapid.IntRange(0, 1).Draw(h.t, "of the set")], "it loses data", "")
		}},
		{"check", func() { h.cycle(source.PollAll) }},
		{"check again", func() { h.cycle(source.PollAll) }},
		{"look", func() { h.cycle(source.PollNone) }},
		{"apply", all(func(ctx context.Context) { h.apply(ctx, plan.All(), flag()) })},
		{"apply some", all(func(ctx context.Context) { h.apply(ctx, plan.Named(names()...), false) })},
		{"apply and die", h.applyAndDie},
		{"roll back", all(func(ctx context.Context) {
			_, _, err := h.agent.Rollback(ctx, plan.All())
			require.NoError(h.t, err)
		})},
		{"roll one back", all(func(ctx context.Context) {
			_, _, err := h.agent.Rollback(ctx, plan.Named(names()[0]))
			require.NoError(h.t, err)
		})},
		{"hold", all(func(ctx context.Context) {
			_, _, err := h.agent.Hold(ctx, []string{rapid.SampledFrom([]string{velum, mariadb}).Draw(h.t, "image")}, false, record.PersonHold{})
			require.NoError(h.t, err)
		})},
		{"resume", h.resume},
		{"busy", func() { h.Grain.SetBusy(map[bool]string{true: "busy"}[flag()]) }},
		{"auto", func() { h.Policy.Auto = flag(); h.agent = h.Agent() }},
		{"kill", func() { h.agent = h.Agent() }},
		{"hours", func() { h.Clock.Add(time.Duration(rapid.IntRange(1, 30).Draw(h.t, "hours")) * time.Hour) }},
		{"another node locks", func() { _, _ = h.Fleet.Node("other").Lock(h.t.Context()) }},
		{"another node unlocks", func() { h.Fleet.Drop("other") }},
		{"the lock is lost in the middle", func() {
			h.Node.OnAside = func(string) error {
				h.Node.OnAside = nil
				h.Fleet.Drop("me")
				h.Fleet.Give("other")
				return nil
			}
		}},
		{"registry", func() { h.Registry.Down(map[bool]error{true: agenttest.ErrRefused}[flag()]) }},
		{"rest", func() { h.rest("a rest") }},
	}
}

func (h *setHistory) cycle(poll source.Poll) status.Status {
	s, err := h.agent.Cycle(h.t.Context(), poll)
	require.NoError(h.t, err)
	return s
}

func (h *setHistory) apply(ctx context.Context, which plan.Which, retry bool) {
	_, _, err := h.agent.Apply(ctx, agent.ApplyRequest{Which: which, Retry: retry})
	if ctx.Err() == nil {
		require.NoError(h.t, err)
	}
}

func (h *setHistory) applyAndDie() {
	ctx, die := context.WithCancel(h.t.Context())
	defer die()
	at, n := rapid.IntRange(1, 4).Draw(h.t, "die at"), 0
	count := func(string) error { n++; dieAt(n, at, die); return nil }
	h.Node.OnStop, h.Node.OnAside = count, count
	h.apply(ctx, plan.All(), false)
	h.Node.OnStop, h.Node.OnAside = nil, nil
	h.agent = h.Agent()
}

func (h *setHistory) resume() {
	_, _, err := h.agent.Resume(h.t.Context(), nil, true)
	require.NoError(h.t, err)
}

// rest lets the agent settle without obstacles and asserts that both pods run one set.
func (h *setHistory) rest(when string) {
	h.Fleet.Drop("other")
	h.Node.OnAside = nil
	h.Grain.SetBusy("")
	h.Registry.Down(nil)
	var s status.Status
	for range 5 {
		h.Clock.Add(time.Hour)
		h.Node.Sync()
		s = h.cycle(source.PollAll)
	}
	a, b := versionOf(h.World, "velum.yaml", "velum", h.versions), versionOf(h.World, "db.yaml", "db", h.versions)
	r, err := h.Disk.Load(h.t.Context())
	require.NoError(h.t, err)
	require.Equal(h.t, a, b, "%s: half a set runs: %s\n%v\n%v", when, s.Reason, r.History, r.Sets)
	require.Empty(h.t, r.Sets, when)
}

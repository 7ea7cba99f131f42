// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

const (
	velum = "registry.suse.com/caasp/v4/velum"
	db    = "registry.suse.com/caasp/v4/db"
	file  = "velum.yaml"
)

// world is a node that runs the first builds of velum and, in an init container, of db.
type world struct {
	*agenttest.World
	*apply.Executor
	t      *testing.T
	offers map[release.Question]source.Offer
	begins func() bool // whether the caller is still there; nil: yes
	first  release.Release
}

// Stage and AwaitListed never fail.
func (w *world) Stage(ctx context.Context, r release.Release) error {
	return w.Node.Stage(ctx, r, node.StageOptions{Progress: func(status.Progress) {}})
}

func (w *world) AwaitListed(context.Context, string) (digest.Digest, error) { return "", nil }

func (w *world) Until(ctx context.Context, _ string) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (w *world) Begin(string) bool { return w.begins == nil || w.begins() }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: agenttest.NewWorld(), t: t, offers: map[release.Question]source.Offer{}}
	log := slog.New(slog.DiscardHandler)
	w.World.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision} }
	w.World.Policy.ApplyTimeout, w.World.Policy.Settle, w.World.Policy.Forgets = time.Minute, 30*time.Second, 0
	w.Executor = &apply.Executor{
		Observed: &node.State{},
		Source:   w.Registry, Pods: w.Node, Images: w.Node, Files: w.Node, Stager: w, Policy: w.World.Policy, Log: log,
		Records: &record.Store{Recorder: w.Disk, Log: log}, Now: time.Now, Jitter: func() float64 { return 0.5 },
		Progress: &status.Reporter{}, Caller: w,
	}
	w.first = w.Registry.Release(velum, "4.0.0", 1, "1.1")
	beside := w.Registry.Release(db, "10.0", 1, "1.1")
	text := []byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: velum\nspec:\n" +
		"  initContainers:\n  - name: db\n    image: " + db + ":10.0-rev1\n    imagePullPolicy: Always\n" +
		"  containers:\n  - name: velum\n    image: " + velum + ":4.0.0-rev1\n    imagePullPolicy: Always\n")
	w.Node.PutTemplate(file, text)
	w.Node.PutPodManifest(file, text)
	w.Node.Sync()
	for name, r := range map[string]release.Release{"velum": w.first, "db": beside} {
		w.offered(r)
		w.Records.Record.Good.Set(record.GoodKey(file, name), record.Good{Repository: r.Repository, Running: r.Digest})
	}
	return w
}

// offered stages a release and makes the source answer with it.
func (w *world) offered(r release.Release) {
	require.NoError(w.t, w.Stage(w.t.Context(), r))
	w.Records.Record.Releases.Set(release.Key(r.Repository, r.Digest), r)
	q := release.Question{Repository: r.Repository, Tag: map[string]string{velum: "4.0.0-rev1", db: "10.0-rev1"}[r.Repository], Convert: true}
	o := source.Offer{Question: q, Answer: record.Answer{Follow: r, Newest: r}}
	if r.Tag != q.Tag {
		o.Follow = w.offers[q].Follow
		o.Newer = []record.Candidate{{Release: r, Confirmed: true}}
	}
	w.offers[q] = o
}

// step returns the pod's step in the next cycle, approved or not.
func (w *world) step(approve bool) plan.Step {
	w.t.Helper()
	ctx := w.t.Context()
	var inv node.Inventory
	inv.NodeName = agenttest.NodeName
	inv.Templates, _ = w.Node.Templates(ctx)
	inv.PodManifests, _ = w.Node.PodManifests(ctx)
	inv.Containers, inv.Used, _ = w.Node.Containers(ctx)
	inv.Held, _ = w.Node.Held(ctx)
	decide := func() plan.Plan { return plan.Decide(inv, w.offers, w.Records.Record, w.Executor.Policy, w.Now()) }
	if p := decide(); approve {
		require.NotEmpty(w.t, p.Pods[0].Offer, "%v", p.Pods[0].Holds)
		w.Records.Record.Approved.Set(file, p.Pods[0].Approval(record.Approval{}, w.Now()))
	}
	for _, s := range decide().Steps {
		if s.Do == plan.StepApply || s.Do == plan.StepVerify || s.Do == plan.StepRollBack {
			return s
		}
	}
	w.t.Fatal("there is no step on the pod")
	return plan.Step{}
}

// update offers the next build of a revision of velum; 0: of its init container.
func (w *world) update(rev int) release.Release {
	next := w.Registry.Release(velum, "4.0.0", max(rev, 1), "2.1")
	if rev == 0 {
		w.Registry.Tag(velum, "4.0.0-rev1", w.first.Digest)
		next = w.Registry.Release(db, "10.0", 1, "2.1")
	}
	w.offered(next)
	return next
}

// says describes a result: the end, the running releases, and the record.
func (w *world) says(r apply.Result) string {
	rec, text := &w.Records.Record, w.Node.PodManifest(file)
	var out []string
	for _, c := range []struct {
		is   bool
		says string
	}{
		{r.Applied, "applied"},
		{r.Canceled, "canceled"},
		{r.TagMoved, "the tag moved"},
		{r.RollBack, "to be rolled back"},
		{len(rec.Approved) > 0, "approved"},
		{len(rec.HeldBack) > 0, "held back"},
		{len(rec.Failed) > 0, "failed"},
		{len(rec.Denied) > 0, "denied"},
		{rec.Overrides[file].Pending, "pending"},
		{strings.Contains(text, "@sha256"), "named by digest"},
		{len(w.Node.Aside()) > 0, "aside"},
		{r.Err != nil, fmt.Sprint(r.Err)},
	} {
		if c.is {
			out = append(out, c.says)
		}
	}
	runs := "nothing"
	if c, is := w.Node.Container(file, "velum"); is {
		runs = rec.NameOf(velum, c.Digests[0])
	}
	return strings.Join(out, "; ") + " | " + runs
}

// during calls do when the pod is stopped, or its pod manifest is set aside.
func (w *world) during(do func()) {
	once := func(string) error { w.Node.OnStop, w.Node.OnAside = nil, nil; do(); return nil }
	w.Node.OnStop, w.Node.OnAside = once, once
}

func after(d time.Duration, do func()) { time.AfterFunc(d, do) }

// restarts makes the container crash at these times after the start of the apply.
func (w *world) restarts(at ...time.Duration) {
	for _, d := range at {
		after(d+1, func() { w.Node.Restart(file, "velum") })
	}
}

func (w *world) crashes(r release.Release) { w.Node.Crash(r.Digest, true) }

func every(d time.Duration, times int) []time.Duration {
	var out []time.Duration
	for n := range times {
		out = append(out, time.Duration(n+1)*d)
	}
	return out
}

// The results of applying a rebuild, which stops the container, and a revision, which recreates the pod.
func TestApply(t *testing.T) {
	t.Parallel()
	twice := func(w *world) { w.Node.PutPodManifest("two.yaml", []byte(w.Node.PodManifest(file))) }
	for name, c := range map[string]struct {
		rev  int
		set  func(w *world, next release.Release)
		want string
		took time.Duration
	}{
		"a rebuild":                {1, func(*world, release.Release) {}, "applied | 4.0.0-rev1-build2.1", 30 * time.Second},
		"a revision":               {2, func(*world, release.Release) {}, "applied | 4.0.0-rev2-build2.1", 30 * time.Second},
		"without time":             {1, func(w *world, _ release.Release) { w.Executor.Policy.Settle = 0 }, "applied | 4.0.0-rev1-build2.1", 0},
		"it falls once":            {1, func(w *world, _ release.Release) { w.restarts(10 * time.Second) }, "applied | 4.0.0-rev1-build2.1", 40500 * time.Millisecond},
		"it falls at the end":      {1, func(w *world, _ release.Release) { w.restarts(29 * time.Second) }, "applied | 4.0.0-rev1-build2.1", 59500 * time.Millisecond},
		"it falls again and again": {1, func(w *world, _ release.Release) { w.restarts(every(20*time.Second, 5)...) }, "to be rolled back; failed; denied; pending; pod velum: not running after 1m0s: it does not stay up (it stopped 4 times) | 4.0.0-rev1-build2.1", 90 * time.Second},
		"it crashes":               {1, func(w *world, next release.Release) { w.crashes(next) }, "to be rolled back; failed; denied; pending; pod velum: not running after 1m0s: velum is not running (exit code 1) | 4.0.0-rev1-build2.1", 90 * time.Second},
		"a revision crashes":       {2, func(w *world, next release.Release) { w.crashes(next) }, "to be rolled back; failed; denied; pending; pod velum: not running after 1m0s: velum is not running (exit code 1) | 4.0.0-rev2-build2.1", 90 * time.Second},
		"it ends five times": {1, func(w *world, next release.Release) {
			w.crashes(next)
			for _, at := range every(10*time.Second, 6) {
				after(at+1, w.Node.Sync)
			}
		}, "to be rolled back; failed; denied; pending; pod velum: velum exited 5 times: velum is not running (exit code 1) | 4.0.0-rev1-build2.1", 40500 * time.Millisecond},
		"it ends four times": {1, func(w *world, next release.Release) {
			w.crashes(next)
			after(35*time.Second, func() { w.Node.Crash(next.Digest, false) })
			for _, at := range every(10*time.Second, 6) {
				after(at+1, w.Node.Sync)
			}
		}, "applied | 4.0.0-rev1-build2.1", 70500 * time.Millisecond},
		"its init container ends five times": {0, func(w *world, next release.Release) {
			w.crashes(next)
			for _, at := range every(10*time.Second, 6) {
				after(at+1, w.Node.Sync)
			}
		}, "to be rolled back; failed; denied; pending; pod velum: db exited 5 times: init container db failed (exit code 1) | nothing", 40500 * time.Millisecond},
		"its init container ends four times": {0, func(w *world, next release.Release) {
			w.crashes(next)
			after(35*time.Second, func() { w.Node.Crash(next.Digest, false) })
			for _, at := range every(10*time.Second, 6) {
				after(at+1, w.Node.Sync)
			}
		}, "applied | 4.0.0-rev1-build1.1", 70500 * time.Millisecond},
		"the runtime is away once": {1, func(w *world, _ release.Release) {
			after(10*time.Second+1, func() { w.Node.Blind(assert.AnError) })
			after(10*time.Second+600*time.Millisecond, func() { w.Node.Blind(nil) })
		}, "applied | 4.0.0-rev1-build2.1", 40500 * time.Millisecond},
		"the runtime is away again and again": {1, func(w *world, _ release.Release) {
			for _, at := range every(20*time.Second, 4) {
				after(at+1, func() { w.Node.Blind(assert.AnError) })
				after(at+600*time.Millisecond, func() { w.Node.Blind(nil) })
			}
		}, "to be rolled back; failed; denied; pending; pod velum: not running after 1m0s: it started too late for the health check | 4.0.0-rev1-build2.1", 90 * time.Second},
		"the runtime is away": {1, func(w *world, _ release.Release) { w.during(func() { w.Node.Blind(assert.AnError) }) }, "approved; pod velum: not running after 1m0s: assert.AnError general error for testing | 4.0.0-rev1-build2.1", 90 * time.Second},
		"kubelet does not start it": {1, func(w *world, _ release.Release) {
			w.during(func() { w.Node.SetKubelet(false) })
			after(2600*time.Millisecond, func() { w.Node.SetKubelet(true); w.Node.Sync() })
		}, "applied | 4.0.0-rev1-build2.1", 33 * time.Second},
		"the registry goes away": {1, func(w *world, _ release.Release) { w.during(func() { w.Registry.Down(agenttest.ErrRefused) }) }, "applied; named by digest | 4.0.0-rev1-build2.1", 32500 * time.Millisecond},
		"the registry was away":  {1, func(w *world, _ release.Release) { w.Registry.Down(agenttest.ErrRefused) }, "held back; held: registry does not answer: registry.suse.com/caasp/v4/velum: upstream registry.test: connection refused | 4.0.0-rev1-build1.1", 0},
		"a run that was killed has stopped it, and the registry is away": {1, func(w *world, _ release.Release) {
			w.Node.SetKubelet(false)
			w.Node.Restart(file, "velum")
			w.Registry.Down(agenttest.ErrRefused)
			w.Node.OnAside = func(string) error { w.Node.SetKubelet(true); return nil }
		}, "applied; named by digest | 4.0.0-rev1-build2.1", 70 * time.Second},
		"the tag has moved":       {1, func(w *world, _ release.Release) { w.Registry.Release(velum, "4.0.0", 1, "2.2") }, "the tag moved; held back; held: registry.suse.com/caasp/v4/velum:4.0.0-rev1 has moved to sha256:307d7459f6fad08a072ac588ef916638f881b230644bb7f99e0f0566b4db8a2f | 4.0.0-rev1-build1.1", 0},
		"the tag moves meanwhile": {1, func(w *world, _ release.Release) { w.during(func() { w.Registry.Release(velum, "4.0.0", 1, "2.2") }) }, "the tag moved; held back; held: registry.suse.com/caasp/v4/velum:4.0.0-rev1 has moved: sha256:5c40e14c6444e63196cdcfd0f050c371bf500434c867b8ebdbdb2a9a89008c3a was started | sha256:307d7459f6fad08a072ac588ef916638f881b230644bb7f99e0f0566b4db8a2f", 0},
		"its caller has left":     {1, func(w *world, _ release.Release) { w.begins = func() bool { return false } }, "canceled; approved | 4.0.0-rev1-build1.1", 0},
		"it was edited": {2, func(w *world, _ release.Release) {
			w.Node.PutPodManifest(file, []byte(w.Node.PodManifest(file)+"# mine\n"))
		}, "held back; velum.yaml: changed by another program or a person | 4.0.0-rev1-build1.1", 0},
		"it is edited meanwhile": {2, func(w *world, next release.Release) {
			w.crashes(next)
			after(time.Second, func() { w.Node.PutPodManifest(file, []byte(w.Node.PodManifest(file)+"# mine\n")) })
		}, "velum.yaml: changed by another program or a person during the health check | 4.0.0-rev2-build2.1", 90 * time.Second},
		"another file of it is there": {1, func(w *world, _ release.Release) { twice(w) }, "held back; held: duplicate: two.yaml and velum.yaml define the same pod default/velum: kubelet runs the one that it read last | 4.0.0-rev1-build1.1", 0},
		"another file comes": {2, func(w *world, _ release.Release) {
			text := []byte(w.Node.PodManifest(file))
			w.during(func() { w.Node.PutPodManifest("two.yaml", text) })
		}, "held back; held: duplicate: two.yaml and velum.yaml define the same pod default/velum: kubelet runs the one that it read last | 4.0.0-rev1-build1.1", 40 * time.Second},
		"it cannot be stopped": {1, func(w *world, _ release.Release) {
			w.Node.OnStop = func(string) error { return errors.New("deadline exceeded") }
		}, "failed; stop container of pod velum: deadline exceeded | 4.0.0-rev1-build1.1", 0},
		"it cannot be set aside": {2, func(w *world, _ release.Release) {
			w.Node.OnAside = func(string) error { return errors.New("read-only") }
		}, "failed; read-only | 4.0.0-rev1-build1.1", 0},
		"nothing ran well before": {1, func(w *world, next release.Release) { w.Records.Record.Good = nil; w.crashes(next) }, "failed; pod velum: not running after 1m0s: velum is not running (exit code 1); not rolled back: no other release is known to have run well | 4.0.0-rev1-build2.1", 90 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			next := w.update(c.rev)
			if name == "nothing ran well before" {
				w.Records.Record.Good = nil
			}
			s := w.step(true)
			c.set(w, next)
			began := time.Now()
			r := w.Apply(t.Context(), s, nil)
			assert.Equal(t, c.want, w.says(r), name)
			assert.Equal(t, c.took, time.Since(began), name)
		})
	}
}

// A refused apply uses up its approval, an interrupted one does not.
func TestApplyThatIsNotMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.update(1)
		assert.Equal(t, "held back; held: no | 4.0.0-rev1-build1.1", w.says(w.Apply(t.Context(), w.step(true), fmt.Errorf("%w: no", release.ErrHeld))))
		ctx, stop := context.WithCancel(t.Context())
		w.during(stop)
		r := w.Apply(ctx, w.step(true), nil)
		require.ErrorIs(t, r.Err, context.Canceled)
		assert.NotEmpty(t, w.Records.Record.Approved)
	})
}

// kubelet has started another release: it passes its health check, or is rolled back.
func TestVerifyAndRollBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.update(1)
		w.Node.Restart(file, "velum")
		s := w.step(false)
		require.Equal(t, plan.StepVerify, s.Do)
		assert.Equal(t, " | 4.0.0-rev1-build2.1", w.says(w.Verify(t.Context(), s, false)))
		assert.True(t, w.Records.Record.Good[record.GoodKey(file, "velum")].PickedUp)
		assert.Equal(t, status.ResultPickedUp, w.Records.Record.History[0].Result)
	})
	for name, c := range map[string]struct {
		set  func(w *world)
		want string
	}{
		"it returns":                 {func(*world) {}, "denied; named by digest | 4.0.0-rev1-build1.1"},
		"what it returns to is lost": {func(w *world) { w.Node.Lose(w.first.Digest) }, "denied; named by digest | 4.0.0-rev1-build1.1"},
		"and cannot be had": {func(w *world) {
			w.Node.Lose(w.first.Digest)
			w.Node.OnStage = func(context.Context, release.Release) error { return agenttest.ErrRefused }
		}, "failed; denied; pending; registry.suse.com/caasp/v4/velum@sha256:bedbe217a47cf0b6f225dd3e539a0a1115cff37fd2a84355b41d4db8f0962fdb: connection refused | 4.0.0-rev1-build2.1"},
		"and is nowhere": {func(w *world) {
			w.Node.Lose(w.first.Digest)
			w.Node.OnStage = func(context.Context, release.Release) error { return release.ErrNotFound }
		}, "failed; denied; registry.suse.com/caasp/v4/velum@sha256:bedbe217a47cf0b6f225dd3e539a0a1115cff37fd2a84355b41d4db8f0962fdb: not found | 4.0.0-rev1-build2.1"},
		"it crashes, too":     {func(w *world) { w.crashes(w.first) }, "failed; denied; named by digest; 4.0.0-rev1-build1.1, 10.0-rev1-build1.1 does not become healthy either: pod velum: not running after 1m0s: velum is not running (exit code 1) | 4.0.0-rev1-build1.1"},
		"its caller has left": {func(w *world) { w.begins = func() bool { return false } }, "canceled; failed; denied; pending | 4.0.0-rev1-build2.1"},
		"a person has edited it": {func(w *world) {
			w.during(func() {})
			w.Node.PutPodManifest(file, []byte(w.Node.PodManifest(file)+"# mine\n"))
		}, "failed; denied; velum.yaml: changed by another program or a person | 4.0.0-rev1-build2.1"},
		"its set returns": {func(w *world) {
			o := w.Records.Record.Overrides[file]
			o.Set = "caasp"
			w.Records.Record.Overrides.Set(file, o)
		}, "denied; named by digest | 4.0.0-rev1-build1.1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			bad := w.update(1)
			w.crashes(bad)
			w.Node.Restart(file, "velum")
			r := w.Verify(t.Context(), w.step(false), false)
			require.True(t, r.RollBack, name)
			assert.Equal(t, []string{release.Key(velum, bad.Digest)}, r.FailedReleases)
			s := w.step(false)
			require.Equal(t, plan.StepRollBack, s.Do)
			c.set(w)
			assert.Equal(t, c.want, w.says(w.RollBack(t.Context(), s)), name)
		})
	}
}

// members are the other members of the control plane.
type members struct{ seen fleet.Observation }

func (m members) Observe(context.Context, []node.PodFile) fleet.Observation { return m.seen }

// A set begins if all of its pods can be restarted, and is recorded before that.
func TestBeginSet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(w *world, s *plan.Step)
		want string
	}{
		"it is begun":          {func(*world, *plan.Step) {}, ""},
		"the registry is away": {func(w *world, _ *plan.Step) { w.Registry.Down(agenttest.ErrRefused) }, "velum.yaml: held: registry does not answer: "},
		"its caller has left":  {func(w *world, _ *plan.Step) { w.begins = func() bool { return false } }, "canceled by its caller"},
		"the disk is full":     {func(w *world, _ *plan.Step) { w.Disk.Fail(errors.New("no space")) }, "held: set: record: no space"},
		"a member is down": {func(w *world, s *plan.Step) {
			s.Apply.Role = "etcd"
			w.Quorum = members{fleet.Observation{Members: []fleet.Part{{Name: "member b", Seen: "refused"}}}}
		}, "velum.yaml: held: quorum: member b: refused"},
	} {
		w := newWorld(t)
		w.update(1)
		s := w.step(true)
		c.set(w, &s)
		err := w.BeginSet(t.Context(), "caasp", []plan.Step{s})
		if c.want == "" {
			require.NoError(t, err, name)
			assert.Contains(t, w.Records.Record.Sets, "caasp")
			continue
		}
		require.ErrorContains(t, err, c.want, name)
		assert.Empty(t, w.Records.Record.Sets, name)
	}
}

// prober checks readiness.
type prober struct {
	verdict apply.Verdict
	err     error
	waiting []node.Waiting
}

func (p *prober) Unready(context.Context, apply.PodReadiness) (apply.Verdict, error) {
	return p.verdict, p.err
}

func (p *prober) Waiting(context.Context) ([]node.Waiting, error) { return p.waiting, nil }

// A pod whose containers are not ready fails its health check; a container whose readiness cannot be checked counts as
// ready.
func TestReadiness(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prober prober
		want   string
	}{
		"ready":           {prober{}, ""},
		"not ready":       {prober{verdict: apply.Verdict{Unready: "velum is not ready: 503"}}, "not running after 1m0s: velum is not ready: 503"},
		"not checked":     {prober{verdict: apply.Verdict{Unchecked: []string{"velum: exec probe"}}}, ""},
		"kubelet is away": {prober{err: errors.New("no kubelet")}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.Readiness = &c.prober
			w.update(1)
			s := w.step(true)
			s.Apply.Probes = []manifests.Probe{{Container: "velum"}}
			r := w.Apply(t.Context(), s, nil)
			if c.want != "" {
				require.ErrorContains(t, r.Err, c.want, name)
				return
			}
			require.NoError(t, r.Err, name)
			assert.Len(t, r.Unchecked, len(c.prober.verdict.Unchecked)+map[bool]int{true: 1}[c.prober.err != nil], name)
		})
	}
}

// A container ends, and kubelet cannot pull its image: the failure says so, not only how the container ended.
func TestPodThatCannotPullSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(w *world, s *plan.Step)
		want string
	}{
		"its registry is away": {
			func(w *world, _ *plan.Step) { w.Registry.Down(agenttest.ErrRefused) },
			"velum is not running (exit code 0); velum: pull registry.suse.com/caasp/v4/velum:4.0.0-rev1: connection refused",
		},
		"CRI does not list it": {
			func(w *world, s *plan.Step) {
				w.Node.SetKubelet(false)
				w.Node.Lose(s.Apply.Expect[0].Digest)
				s.Apply.PullFirst = true
			},
			"velum is not running (exit code 0); velum: CRI lists neither registry.suse.com/caasp/v4/velum:4.0.0-rev1 nor its digest sha256:",
		},
		"kubelet says it": {
			func(w *world, _ *plan.Step) {
				w.Registry.Down(agenttest.ErrRefused)
				w.Readiness = &prober{waiting: []node.Waiting{{
					Namespace: "default", Pod: "velum-" + agenttest.NodeName, Container: "velum", Reason: "ErrImagePull", Message: "no such host",
				}}}
				w.Executor.Policy.NodeName = agenttest.NodeName
			},
			"velum is not running (exit code 0); velum: ErrImagePull: no such host",
		},
		"its image is not the cause": {
			func(w *world, _ *plan.Step) { w.Node.SetKubelet(false) }, "velum is not running (exit code 0)",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.update(1)
			w.Node.Restart(file, "velum")
			s := w.step(false)
			require.Equal(t, plan.StepVerify, s.Do)
			c.set(w, &s)
			w.Node.Restart(file, "velum")
			r := w.Verify(t.Context(), s, false)
			require.Error(t, r.Err, name)
			_, said, _ := strings.Cut(r.Err.Error(), "not running after 1m0s: ")
			if name == "CRI does not list it" {
				said = said[:min(len(said), len(c.want))]
			}
			assert.Equal(t, c.want, said, name)
		})
	}
}

// inhibitor delays a shutdown.
type inhibitor struct {
	err  error
	held bool
	said []string
}

func (i *inhibitor) Inhibit(_ context.Context, why string) (func(), error) {
	i.held, i.said = i.err == nil, append(i.said, why)
	return func() { i.held, i.said = false, append(i.said, "over") }, i.err
}

// meter counts restarts.
type meter []apply.Measured

func (m *meter) Restarted(how apply.Measured) { *m = append(*m, how) }

func TestShutdownsWaitForARestart(t *testing.T) {
	t.Parallel()
	for name, rev := range map[string]int{"rebuild": 1, "revision": 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			i := &inhibitor{}
			w.Inhibitor = i
			stops := 0
			w.during(func() { stops++; assert.True(t, i.held, name) })
			w.Progress.To = func(status.Progress) {
				assert.False(t, i.held, "%s: the health check may be cut short", name)
			}
			w.update(rev)
			require.NoError(t, w.Apply(t.Context(), w.step(true), nil).Err, name)
			assert.Equal(t, 1, stops, name)
			assert.Equal(t, []string{"apply velum", "over"}, i.said, name)
		})
	}
}

func TestRestartsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := &meter{}
		w.Inhibitor, w.Meter = &inhibitor{err: errors.New("no bus")}, m
		w.update(1)
		require.NoError(t, w.Apply(t.Context(), w.step(true), nil).Err, "a shutdown may interrupt it anywhere")
		assert.Equal(t, meter{{Result: status.ResultApplied, Took: 30 * time.Second}}, *m)
		w.offered(w.Registry.Release(velum, "4.0.0", 1, "2.2"))
		w.Registry.Down(agenttest.ErrRefused)
		w.Apply(t.Context(), w.step(true), nil)
		assert.Equal(t, status.ResultHeld, (*m)[1].Result)
		w.Registry.Down(nil)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		w.Apply(ctx, w.step(true), nil)
		assert.Len(t, *m, 2, "it continues, and is counted then")
	})
}

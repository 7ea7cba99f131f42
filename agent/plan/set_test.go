// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
)

const set = "caasp-4.5.2"

var rebuildDB = rel(mariadb, "10.0-rev1-build1.2")

// setNode returns a node with two pods bound to a catalog, and an offered set of both.
func setNode() *world {
	w := empty()
	w.catalog("", first, firstDB)
	w.catalog(set, rebuild, rebuildDB)
	w.template("velum.yaml", "velum="+velum+":4.0.0-rev1")
	w.template("db.yaml", "db="+mariadb+":10.0-rev1")
	w.isBound("velum.yaml", "velum", first)
	w.isBound("db.yaml", "db", firstDB)
	w.offer("4.0.0-rev1", rebuild)
	w.offer("10.0-rev1", rebuildDB)
	w.stage(rebuild)
	w.stage(rebuildDB)
	return w
}

// isBound makes a pod run a release that its pod manifest names by digest, as the catalog lists it.
func (w *world) isBound(file, name string, r release.Release) {
	w.wrote(file, text(strings.TrimSuffix(file, ".yaml"), "Always", name+"="+r.Repository+":"+r.Tag+"@"+r.Digest.String()))
	w.rec.Bound.Set(file, map[string]digest.Digest{"container " + name: r.Digest})
	w.runs(file, name, r)
}

func (w *world) saysSet() string {
	p := w.decide()
	return of(p, "velum.yaml") + " | " + of(p, "db.yaml") + " | " + steps(p)
}

func (w *world) locked(file string) {
	w.rec.Lock = fleet.LockRecord{State: fleet.LockWaiting, Pods: []string{file}, Error: "taken", RetryAt: now.Add(time.Minute)}
}

// The pods of a set wait for each other: all are applied, or none.
func TestPodsOfASet(t *testing.T) {
	t.Parallel()
	auto := func() *world { w := setNode(); w.policy.Auto = true; return w }
	withdrawn := func(l *format.Release) { l.Withdrawn = &format.Withdrawal{Reason: "it loses data"} }
	each(t, auto, map[string]row{
		"both are staged":            {func(*world) {}, "rebuild; staged; with db.yaml | rebuild; staged; with velum.yaml | keep db.yaml; keep velum.yaml; apply db.yaml (rebuild); apply velum.yaml (rebuild)"},
		"a person has approved it":   {func(w *world) { w.approve(); w.policy.Auto = false }, "rebuild; staged; with db.yaml | rebuild; staged; with velum.yaml | keep db.yaml; keep velum.yaml; apply db.yaml (rebuild); apply velum.yaml (rebuild)"},
		"a person has to approve it": {func(w *world) { w.policy.Auto = false }, "rebuild; staged; with db.yaml | rebuild; staged; with velum.yaml | keep db.yaml; keep velum.yaml"},
		"one is not staged":          {func(w *world) { w.inv.Held = w.inv.Held[:len(w.inv.Held)-2] }, "rebuild; with db.yaml; set: caasp-4.5.2: not staged: r.io/caasp/mariadb:10.0-rev1-build1.2 | rebuild; with velum.yaml; set: caasp-4.5.2: not staged: r.io/caasp/mariadb:10.0-rev1-build1.2 | stage 10.0-rev1-build1.2; keep db.yaml; keep velum.yaml"},
		"a hold on one":              {func(w *world) { w.holds(mariadb) }, "rebuild; with db.yaml; set: caasp-4.5.2: db.yaml also waits: hold: r.io/caasp/mariadb: wait | rebuild; staged; with velum.yaml; hold: r.io/caasp/mariadb: wait | keep db.yaml; keep velum.yaml"},
		"the lock, for one":          {func(w *world) { w.locked("db.yaml") }, "rebuild; staged; with db.yaml; waits: lock: caasp-4.5.2: db.yaml also waits: lock: taken | rebuild; staged; with velum.yaml; waits: lock: taken | keep db.yaml; keep velum.yaml"},
		"the window":                 {func(w *world) { w.policy.Window = night }, "rebuild; staged; with db.yaml; waits: window: the next maintenance window opens at 2026-05-02T02:00:00Z | rebuild; staged; with velum.yaml; waits: window: the next maintenance window opens at 2026-05-02T02:00:00Z | keep db.yaml; keep velum.yaml"},
		"one is not offered":         {func(w *world) { w.offer("10.0-rev1", firstDB) }, "rebuild; set: caasp-4.5.2: not offered: r.io/caasp/mariadb:10.0-rev1-build1.2 |  | keep velum.yaml; prune r.io/caasp/mariadb:10.0-rev1-build1.2"},
		"one is withdrawn":           {func(w *world) { w.listed(rebuildDB, withdrawn) }, "rebuild; set: caasp-4.5.2: withdrawn: r.io/caasp/mariadb:10.0-rev1-build1.2 |  | keep velum.yaml"},
		"one wants a newer agent":    {func(w *world) { w.listed(rebuildDB, func(l *format.Release) { l.Critical = []string{"x"} }) }, "rebuild; set: caasp-4.5.2: needs a newer agent: r.io/caasp/mariadb:10.0-rev1-build1.2 |  | keep velum.yaml"},
		"one cannot be read":         {func(w *world) { w.templateText("db.yaml", []byte("kind: [")) }, "rebuild; set: caasp-4.5.2: db.yaml cannot be read: r.io/caasp/mariadb:10.0-rev1-build1.2 | template: line 1: did not find expected node content | keep velum.yaml"},
		"one runs it":                {func(w *world) { w.isBound("db.yaml", "db", rebuildDB) }, "rebuild; staged |  | keep velum.yaml; prune r.io/caasp/mariadb:10.0-rev1-build1.1; apply velum.yaml (rebuild)"},
		"one runs it and is not verified healthy": {func(w *world) {
			w.isBound("db.yaml", "db", rebuildDB)
			w.rec.Good.Set("db.yaml/db", record.Good{Repository: mariadb, Running: firstDB.Digest})
		}, "rebuild; set: caasp-4.5.2: not verified healthy yet: r.io/caasp/mariadb:10.0-rev1-build1.2 |  | keep velum.yaml; verify db.yaml"},
		"one gets a higher one": {func(w *world) {
			higher := rel(mariadb, "10.0-rev1-build1.3")
			w.catalog("", higher)
			w.offer("10.0-rev1", higher)
			w.stage(higher)
		}, "rebuild; staged; with db.yaml | rebuild; staged; with velum.yaml | keep db.yaml; keep velum.yaml; prune r.io/caasp/mariadb:10.0-rev1-build1.2; apply db.yaml (rebuild); apply velum.yaml (rebuild)"},
		"a member that is not listed any more": {func(w *world) {
			w.listed(rebuild, func(l *format.Release) {
				l.Members = []string{velum + ":" + l.Tag, mariadb + ":10.0-rev1-build9.9"}
			})
		}, "rebuild; with db.yaml; set: caasp-4.5.2: no longer in the catalog: r.io/caasp/mariadb:10.0-rev1-build9.9 | rebuild; with velum.yaml; set: caasp-4.5.2: no longer in the catalog: r.io/caasp/mariadb:10.0-rev1-build9.9 | keep db.yaml; keep velum.yaml"},
		"a member that the node does not run": {func(w *world) {
			w.listed(rebuild, func(l *format.Release) {
				l.Members = []string{velum + ":" + l.Tag, "r.io/other:1.0"}
			})
		}, "rebuild; staged; with db.yaml | rebuild; staged; with velum.yaml | keep db.yaml; keep velum.yaml; apply db.yaml (rebuild); apply velum.yaml (rebuild)"},
		"it runs, and is withdrawn": {func(w *world) {
			w.isBound("velum.yaml", "velum", rebuild)
			w.isBound("db.yaml", "db", rebuildDB)
			w.listed(rebuild, withdrawn)
			w.listed(rebuildDB, withdrawn)
			w.offer("4.0.0-rev1", first)
			w.policy.Catalog.AllowLower = true
		}, "rebuild; set: caasp-4.5.2: no release is offered instead of r.io/caasp/mariadb:10.0-rev1-build1.2 |  | keep velum.yaml; prune r.io/caasp/mariadb:10.0-rev1-build1.1"},
		"both return": {func(w *world) {
			w.isBound("velum.yaml", "velum", rebuild)
			w.isBound("db.yaml", "db", rebuildDB)
			w.listed(rebuild, withdrawn)
			w.listed(rebuildDB, withdrawn)
			w.offer("4.0.0-rev1", first)
			w.offer("10.0-rev1", firstDB)
			w.policy.Catalog.AllowLower = true
		}, "rebuild; staged; with db.yaml | rebuild; staged; with velum.yaml | keep db.yaml; keep velum.yaml; apply db.yaml (rebuild); apply velum.yaml (rebuild)"},
		"a lower release is not allowed": {func(w *world) {
			w.isBound("velum.yaml", "velum", rebuild)
			w.listed(rebuild, withdrawn)
			w.offer("4.0.0-rev1", first)
		}, " | rebuild; set: caasp-4.5.2: withdrawn: r.io/caasp/velum:4.0.0-rev1-build1.2 | keep db.yaml"},
		"a rollout whose time has come": {func(w *world) {
			w.listed(rebuildDB, func(l *format.Release) { l.Rollout = &format.Rollout{From: now} })
		}, "rebuild; staged; with db.yaml | rebuild; staged; with velum.yaml | keep db.yaml; keep velum.yaml; apply db.yaml (rebuild); apply velum.yaml (rebuild)"},
		"a rollout of one": {func(w *world) {
			w.listed(rebuildDB, func(l *format.Release) { l.Rollout = &format.Rollout{From: now.Add(time.Hour)} })
		}, "rebuild; staged; with db.yaml; waits: set: caasp-4.5.2: db.yaml also waits: rollout: 10.0-rev1-build1.2 rolls out to this node at 2026-05-01T13:00:00Z | rebuild; staged; with velum.yaml; waits: rollout: 10.0-rev1-build1.2 rolls out to this node at 2026-05-01T13:00:00Z | keep db.yaml; keep velum.yaml"},
		"an expired catalog": {func(w *world) { w.inv.Catalog.Expires = now }, "rebuild; staged; with db.yaml; waits: catalog: r.io/catalog:prod expired at 2026-05-01T12:00:00Z | rebuild; staged; with velum.yaml; waits: catalog: r.io/catalog:prod expired at 2026-05-01T12:00:00Z | keep db.yaml; keep velum.yaml"},
	}, (*world).saysSet)

	p := setNode().decide()
	assert.Equal(t, []string{set}, p.Pods[0].Sets)
	halves := plan.HoldHalves(p.Pods[:1])
	assert.Equal(t, status.Hold{Name: status.HoldSet, Reason: set + " is applied as a whole: also name velum.yaml"}, halves[0].Holds[0])
	assert.Empty(t, plan.HoldHalves(p.Pods)[0].Holds)
}

// begun returns setNode with a set whose db.yaml was restarted.
func begun() *world {
	w := setNode()
	w.rec.Sets.Set(set, record.BegunSet{Pods: map[string]record.SetPod{
		"velum.yaml": {To: map[string]digest.Digest{"container velum": rebuild.Digest}, Before: map[string]release.Pin{"velum": {Repository: velum, Digest: first.Digest}}},
		"db.yaml":    {To: map[string]digest.Digest{"container db": rebuildDB.Digest}, Before: map[string]release.Pin{"db": {Repository: mariadb, Digest: firstDB.Digest}}},
	}})
	w.isBound("db.yaml", "db", rebuildDB)
	return w
}

// A set that has begun is completed, or its pods are rolled back.
func TestBegunSet(t *testing.T) {
	t.Parallel()
	each(t, begun, map[string]row{
		"the other goes on":  {func(*world) {}, "velum.yaml goes on; keep velum.yaml; apply velum.yaml (rebuild)"},
		"none was restarted": {func(w *world) { w.isBound("db.yaml", "db", firstDB) }, "ended; keep db.yaml; keep velum.yaml"},
		"all run it":         {func(w *world) { w.isBound("velum.yaml", "velum", rebuild) }, "ended; "},
		"one is not verified healthy": {func(w *world) {
			w.isBound("velum.yaml", "velum", rebuild)
			w.rec.Good.Set("velum.yaml/velum", record.Good{Repository: velum, Running: first.Digest})
		}, "verify velum.yaml"},
		"the other waits for the lock": {func(w *world) { w.locked("velum.yaml") }, "velum.yaml goes on; keep velum.yaml"},
		"the node is busy":             {func(w *world) { w.inv.Busy = "busy" }, "velum.yaml goes on; keep velum.yaml"},
		"the node reboots":             {func(w *world) { w.inv.RestartHolds = []status.Hold{{Name: "reboot", Reason: "soon"}} }, "velum.yaml goes on; keep velum.yaml"},
		"a person holds the other":     {func(w *world) { w.holds(velum) }, "undo db.yaml (rolled back with its set caasp-4.5.2: velum.yaml: hold: r.io/caasp/velum: wait): mariadb:10.0-rev1-build1.1@sha256:e25 IfNotPresent; keep velum.yaml"},
		"the other is offered another": {func(w *world) { w.offer("4.0.0-rev1", rel(velum, "4.0.0-rev1-build1.9")) }, "undo db.yaml (rolled back with its set caasp-4.5.2: velum.yaml would not get r.io/caasp/velum@sha256:c9f7192b08e03733510c2f58698c2e15120367d275058e39b802f4709bc0bd6b): mariadb:10.0-rev1-build1.1@sha256:e25 IfNotPresent; prune r.io/caasp/velum:4.0.0-rev1-build1.2"},
		"the other has no update":      {func(w *world) { w.offer("4.0.0-rev1", first) }, "undo db.yaml (rolled back with its set caasp-4.5.2: velum.yaml would not get r.io/caasp/velum@sha256:c9f7192b08e03733510c2f58698c2e15120367d275058e39b802f4709bc0bd6b): mariadb:10.0-rev1-build1.1@sha256:e25 IfNotPresent; prune r.io/caasp/velum:4.0.0-rev1-build1.2"},
		"the other is withdrawn": {func(w *world) {
			w.listed(rebuild, func(l *format.Release) { l.Withdrawn = &format.Withdrawal{Reason: "it loses data"} })
		}, "undo db.yaml (rolled back with its set caasp-4.5.2: velum.yaml would not get r.io/caasp/velum@sha256:c9f7192b08e03733510c2f58698c2e15120367d275058e39b802f4709bc0bd6b): mariadb:10.0-rev1-build1.1@sha256:e25 IfNotPresent; "},
		"the other failed": {func(w *world) {
			w.rec.Failed.Set("velum.yaml", record.Failure{Running: "x", Reason: "did not come up"})
		}, "undo db.yaml (rolled back with its set caasp-4.5.2: velum.yaml: did not come up): mariadb:10.0-rev1-build1.1@sha256:e25 IfNotPresent; keep velum.yaml"},
		"the other cannot be read": {func(w *world) { w.templateText("velum.yaml", []byte("kind: [")) }, "undo db.yaml (rolled back with its set caasp-4.5.2: velum.yaml: template: line 1: did not find expected node content): mariadb:10.0-rev1-build1.1@sha256:e25 IfNotPresent; "},
		"the other is gone":        {func(w *world) { w.template("velum.yaml"); w.disk("velum.yaml", nil) }, "ended; prune r.io/caasp/velum:4.0.0-rev1-build1.2"},
		"the other did not come up": {func(w *world) {
			o := w.rolledBack(rebuild)
			o.Pending = true
			w.rec.Overrides.Set("velum.yaml", o)
		}, "undo db.yaml (rolled back with its set caasp-4.5.2: velum.yaml: did not come up): mariadb:10.0-rev1-build1.1@sha256:e25 IfNotPresent; roll back velum.yaml"},
		"the first has no previous release": {func(w *world) {
			w.holds(velum)
			s := w.rec.Sets[set]
			s.Pods["db.yaml"] = record.SetPod{To: s.Pods["db.yaml"].To}
		}, "ended; db.yaml stays: no other release is known to have run well; keep velum.yaml; prune r.io/caasp/mariadb:10.0-rev1-build1.1"},
	}, func(w *world) string {
		p := w.decide()
		b := p.BegunSets[0]
		out := []string{}
		if b.Ended {
			out = append(out, "ended")
		}
		for _, file := range slices.Sorted(maps.Keys(b.Undo)) {
			out = append(out, "undo "+file+" ("+b.Undo[file].Reason+"): "+images([]byte(b.Undo[file].Data)))
		}
		for file, why := range b.Stays {
			out = append(out, file+" stays: "+why)
		}
		for _, pod := range p.Pods {
			if pod.GoesOn {
				out = append(out, pod.File+" goes on")
			}
		}
		return strings.Join(append(out, steps(p)), "; ")
	})
}

// Each pod's wanted and previous releases of a set are recorded before the first restart.
func TestNewBegunSet(t *testing.T) {
	t.Parallel()
	w := setNode()
	w.approve()
	var applies []plan.Step
	for _, s := range w.decide().Steps {
		if s.Do == plan.StepApply {
			applies = append(applies, s)
		}
	}
	assert.Equal(t, begun().rec.Sets[set], plan.NewBegunSet(applies, w.rec))
}

// A pod is bound to the catalog's digests, unless a person wrote others.
func TestBound(t *testing.T) {
	t.Parallel()
	each(t, setNode, map[string]row{
		"listed":       {func(*world) {}, "velum:4.0.0-rev1@sha256:c9f Always"},
		"not listed":   {func(w *world) { w.inv.Catalog.Images = nil }, "velum:4.0.0-rev1@sha256:c9f Always"},
		"no catalog":   {func(w *world) { w.inv.Catalog = catalog.Listing{} }, "velum:4.0.0-rev1 Always"},
		"without pull": {func(w *world) { w.template("velum.yaml", "velum="+velum+":4.0.0-rev1\n    imagePullPolicy: Never") }, "velum:4.0.0-rev1 Never"},
	}, func(w *world) string { p := w.decide(); return images(p.Pods[1].Wanted) })
}

// ran records good releases of a container, the last one first.
func (w *world) ran(file, name string, all ...release.Release) {
	g := record.Good{Repository: all[0].Repository, Running: all[0].Digest}
	for _, r := range all[1:] {
		w.stage(r)
		g.Before = append(g.Before, release.Pin{Repository: r.Repository, Digest: r.Digest})
	}
	w.rec.Good.Set(record.GoodKey(file, name), g)
}

// A person's rollback returns the named images to their last known good releases.
func TestRollbacks(t *testing.T) {
	t.Parallel()
	returned := func() *world {
		w := setNode()
		w.isBound("velum.yaml", "velum", rebuild)
		w.isBound("db.yaml", "db", rebuildDB)
		w.ran("velum.yaml", "velum", rebuild, first)
		w.ran("db.yaml", "db", rebuildDB, firstDB)
		w.listed(rebuild, func(l *format.Release) { l.Set = "" })
		w.listed(rebuildDB, func(l *format.Release) { l.Set = "" })
		return w
	}
	inSet := func(w *world) {
		w.listed(rebuild, func(l *format.Release) { l.Set = set })
		w.listed(rebuildDB, func(l *format.Release) { l.Set = set })
	}
	one, both := plan.Named("velum.yaml"), plan.Named("velum.yaml", "db.yaml")
	for name, c := range map[string]struct {
		which plan.Which
		set   func(*world)
		want  string
	}{
		"one":           {one, func(*world) {}, "velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1"},
		"both":          {both, func(*world) {}, "db.yaml: from 10.0-rev1-build1.2 to 10.0-rev1-build1.1; velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1"},
		"all":           {plan.All(), inSet, "db.yaml: from 10.0-rev1-build1.2 to 10.0-rev1-build1.1; velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1"},
		"one of a set":  {one, inSet, "velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1 held: set: caasp-4.5.2 is rolled back as a whole: also name db.yaml"},
		"both of a set": {both, inSet, "db.yaml: from 10.0-rev1-build1.2 to 10.0-rev1-build1.1; velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1"},
		"a rollback has pinned the other to its set": {one, func(w *world) {
			inSet(w)
			w.ran("db.yaml", "db", firstDB)
			pin := release.Pin{Repository: mariadb, Digest: rebuildDB.Digest}
			w.rec.Overrides.Set("db.yaml", record.Override{Images: map[string]record.PinnedImage{"container db": {Pin: pin}}})
		}, "velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1 held: set: caasp-4.5.2 is rolled back as a whole: also name db.yaml"},
		"the other runs another release": {one, func(w *world) { inSet(w); w.ran("db.yaml", "db", firstDB) }, "velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1"},
		"the other is not there": {one, func(w *world) {
			inSet(w)
			w.ran("db.yaml", "db", firstDB)
			w.ran("gone.yaml", "db", rebuildDB)
		}, "velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1"},
		"nothing ran before":                           {one, func(w *world) { w.ran("velum.yaml", "velum", rebuild) }, "velum.yaml: nothing to return to"},
		"the other of its set has no previous release": {both, func(w *world) { inSet(w); w.ran("db.yaml", "db", rebuildDB) }, "db.yaml: nothing to return to; velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1 held: set: caasp-4.5.2 is rolled back as a whole, but db.yaml has no previous release"},
		"the other of its set cannot be read":          {both, func(w *world) { inSet(w); w.templateText("db.yaml", []byte("kind: [")) }, "db.yaml: nothing to return to template: line 1: did not find expected node content; velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1 held: set: caasp-4.5.2 is rolled back as a whole: db.yaml: template: line 1: did not find expected node content"},
		"what ran before is denied":                    {one, func(w *world) { w.deny(first) }, "velum.yaml: nothing to return to"},
		"then the one before that":                     {one, func(w *world) { w.deny(first); w.ran("velum.yaml", "velum", rebuild, first, patch) }, "velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.1-rev1-build1.1"},
		"its set is being applied":                     {one, func(w *world) { w.rec.Sets = begun().rec.Sets }, "velum.yaml: nothing to return to held: set: an apply of caasp-4.5.2 is running; wait for its end, or hold the images that it has not reached yet"},
		"two files of one pod":                         {one, func(w *world) { w.disk("two.yaml", text("velum", "", "velum="+velum+":4.0.0-rev1")) }, "velum.yaml: nothing to return to held: duplicate: two.yaml and velum.yaml define the same pod default/velum: kubelet runs the one that it read last"},
		"a foreign file":                               {one, func(w *world) { w.template("velum.yaml"); w.rec.Wrote.Delete("velum.yaml") }, "velum.yaml: nothing to return to velum.yaml has no template and is not listed under manage"},
		"the catalog was never read":                   {one, func(w *world) { w.inv.Catalog = catalog.Listing{Catalog: "r.io/catalog:prod"} }, "velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1 held: set: sets are unknown until r.io/catalog:prod is read: run check first, or also name db.yaml"},
		"it was never read, and all are named":         {both, func(w *world) { w.inv.Catalog = catalog.Listing{Catalog: "r.io/catalog:prod"} }, "db.yaml: from 10.0-rev1-build1.2 to 10.0-rev1-build1.1; velum.yaml: from 4.0.0-rev1-build1.2 to 4.0.0-rev1-build1.1"},
		"without a pod manifest":                       {one, func(w *world) { w.disk("velum.yaml", nil) }, "velum.yaml: nothing to return to"},
		"a garbled file":                               {one, func(w *world) { w.disk("velum.yaml", []byte("kind: [")) }, "velum.yaml: nothing to return to pod manifest: line 1: did not find expected node content"},
	} {
		w := returned()
		c.set(w)
		p := w.decide()
		pods, err := plan.Pick(p, c.which)
		require.NoError(t, err, name)
		var out []string
		for _, r := range plan.Rollbacks(w.inv, w.rec, w.policy, w.now, pods, c.which) {
			says := r.Pod.File + ":"
			for _, e := range r.Edits {
				says += " from " + e.From + " to " + e.To
			}
			if r.To == nil {
				says += " nothing to return to"
			}
			if r.Err != nil {
				says += " " + r.Err.Error()
			}
			out = append(out, says)
		}
		assert.Equal(t, c.want, strings.Join(out, "; "), name)
	}
}

// A name that selects nothing, and is the name of a file without its end, of a pod or of a container, proposes the file.
func TestAnUnknownNameProposesThePodManifest(t *testing.T) {
	t.Parallel()
	of := func(file, pod, container string) plan.PodPlan {
		i := plan.ImagePlan{}
		i.Want.Image.Container, i.Want.Ask.Repository = container, "registry.example.com/demo/app"
		return plan.PodPlan{File: file, Pod: pod, Images: []plan.ImagePlan{i}}
	}
	p := plan.Plan{Pods: []plan.PodPlan{of("crash.yaml", "default/looping", "loop"), of("other.json", "crash", "x")}}
	for name, want := range map[string]string{
		"crash":      "crash: no such image or pod manifest; did you mean crash.yaml or other.json?",
		"looping":    "looping: no such image or pod manifest; did you mean crash.yaml?",
		"x":          "x: no such image or pod manifest; did you mean other.json?",
		"cras":       "cras: no such image or pod manifest",
		"other.yaml": "other.yaml: no such image or pod manifest",
	} {
		_, err := plan.Pick(p, plan.Named(name))
		require.ErrorIs(t, err, plan.ErrUnknownImage)
		require.EqualError(t, err, want)
	}
}

// severe makes the catalog give a release a severity.
func severe(s format.Severity) func(*format.Release) {
	return func(l *format.Release) { l.Advisory = &format.Advisory{Severity: s, Fixes: []string{"CVE-2026-1234"}} }
}

// Mode auto leaves to a person what no verified catalog calls severe enough; no severity overrides anything else.
func TestModeAutoAppliesWhatIsSevereEnough(t *testing.T) {
	t.Parallel()
	const apply = "keep velum.yaml; apply velum.yaml (rebuild)"
	waits := func(has string) string {
		return "rebuild; staged; waits: severity: its severity is " + has +
			", and mode auto applies only updates from important (apply.minSeverity) | keep velum.yaml"
	}
	each(t, func() *world {
		w := empty()
		w.catalog("", first, rebuild)
		w.template("velum.yaml", "velum="+velum+":4.0.0-rev1")
		w.isBound("velum.yaml", "velum", first)
		w.offer("4.0.0-rev1", rebuild)
		w.stage(rebuild)
		w.policy.Auto, w.policy.MinSeverity = true, format.SeverityImportant
		return w
	}, map[string]row{
		"none is known":          {func(*world) {}, waits("not known")},
		"too low":                {func(w *world) { w.listed(rebuild, severe("moderate")) }, waits("moderate")},
		"enough":                 {func(w *world) { w.listed(rebuild, severe("important")) }, "rebuild; staged | " + apply},
		"more":                   {func(w *world) { w.listed(rebuild, severe("critical")) }, "rebuild; staged | " + apply},
		"of the running release": {func(w *world) { w.listed(first, severe("critical")) }, waits("not known")},
		"of a release in between": {func(w *world) {
			between, last := rebuild, rel(velum, "4.0.0-rev1-build1.3")
			w.catalog("", last)
			w.listed(between, severe("important"))
			w.listed(last, severe("low"))
			w.offer("4.0.0-rev1", last)
			w.stage(last)
		}, "rebuild; staged | keep velum.yaml; prune r.io/caasp/velum:4.0.0-rev1-build1.2; apply velum.yaml (rebuild)"},
		"by a person": {
			func(w *world) { w.listed(rebuild, severe("low")); w.approve() },
			waits("low") + "; apply velum.yaml (rebuild)",
		},
		"in manual mode": {func(w *world) { w.policy.Auto = false }, "rebuild; staged | keep velum.yaml"},
		"outside of a window": {
			func(w *world) { w.listed(rebuild, severe("critical")); w.policy.Window = night },
			"rebuild; staged; waits: window: the next maintenance window opens at 2026-05-02T02:00:00Z | keep velum.yaml",
		},
		"before its rollout": {func(w *world) {
			w.listed(rebuild, severe("critical"))
			w.listed(rebuild, func(l *format.Release) { l.Rollout = &format.Rollout{From: now.Add(time.Hour)} })
		}, "rebuild; staged; waits: rollout: 4.0.0-rev1-build1.2 rolls out to this node at 2026-05-01T13:00:00Z | keep velum.yaml"},
		"held":   {func(w *world) { w.listed(rebuild, severe("critical")); w.holds(velum) }, "rebuild; staged; hold: r.io/caasp/velum: wait | keep velum.yaml"},
		"locked": {func(w *world) { w.listed(rebuild, severe("critical")); w.locked("velum.yaml") }, "rebuild; staged; waits: lock: taken | keep velum.yaml"},
		"withdrawn": {func(w *world) {
			w.listed(rebuild, severe("critical"))
			w.listed(rebuild, func(l *format.Release) { l.Withdrawn = &format.Withdrawal{Reason: "bad"} })
		}, " | "},
	}, func(w *world) string { p := w.decide(); return of(p, "velum.yaml") + " | " + steps(p) })
}

// One of a set that is severe enough takes the others along; without it the set waits.
func TestASetCountsByItsHighestSeverity(t *testing.T) {
	t.Parallel()
	w := setNode()
	w.policy.Auto, w.policy.MinSeverity = true, format.SeverityImportant
	names := func() (names []string) {
		for _, p := range w.decide().Pods {
			for _, h := range p.Waits {
				names = append(names, h.Name)
			}
		}
		return names
	}
	assert.Contains(t, names(), status.HoldSeverity)
	w.listed(rebuildDB, severe("critical"))
	assert.Empty(t, names())
	assert.Contains(t, steps(w.decide()), "apply velum.yaml")
}

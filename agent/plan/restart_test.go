// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// restarts describes how a step restarts a pod, its expectations, and its rollback target.
func restarts(s plan.Step) string {
	a := s.Apply
	var out []string
	for _, c := range []struct {
		is   bool
		says string
	}{
		{a.Aside, "set aside"},
		{s.Data != nil, "writes " + images(s.Data)},
		{len(a.Stop) > 0, "stops " + strings.Join(a.Stop, ", ")},
		{a.PullFirst, "pulls first"},
		{a.Remove, "removes"},
	} {
		if c.is {
			out = append(out, c.says)
		}
	}
	for _, e := range a.Expect {
		says := fmt.Sprintf("expects %s %s", e.Container, e.Name)
		for _, c := range []struct {
			is   bool
			says string
		}{{e.OnNode, " on the node"}, {e.Anew, " anew"}, {e.Init, " at first"}} {
			if c.is {
				says += c.says
			}
		}
		out = append(out, says)
	}
	switch {
	case a.Rollback != nil:
		out = append(out, "returns to "+images([]byte(a.Rollback.Data)))
	case a.NoRollback != "":
		out = append(out, "does not return: "+a.NoRollback)
	}
	if len(a.Broken) > 0 {
		out = append(out, "did not run: "+strings.Join(a.Broken, ", "))
	}
	return strings.Join(out, "; ")
}

// The steps of an approved offer.
func TestApplyStep(t *testing.T) {
	t.Parallel()
	two := func() *world {
		w := empty()
		w.has("velum.yaml", "velum="+velum+":4.0.0-rev1", "init:db="+mariadb+":10.0-rev1")
		w.runs("velum.yaml", "velum", first)
		w.runs("velum.yaml", "db", firstDB)
		w.inv.Containers[1].Running = false
		w.offer("4.0.0-rev1", first)
		w.offer("10.0-rev1", firstDB)
		w.stage(rebuild)
		w.stage(revision)
		return w
	}
	const back = "returns to velum:4.0.0-rev1-build1.1@sha256:86d IfNotPresent, mariadb:10.0-rev1-build1.1@sha256:e25 IfNotPresent"
	each(t, two, map[string]row{
		"a rebuild":                      {func(w *world) { w.answers(rebuild) }, "stops velum/velum; expects velum 4.0.0-rev1-build1.2; " + back},
		"a revision":                     {func(w *world) { w.answers(revision) }, "set aside; writes velum:4.0.0-rev2 Always, mariadb:10.0-rev1 Always; expects velum 4.0.0-rev2-build2.1 anew; expects db 10.0-rev1-build1.1 anew at first; " + back},
		"a rebuild of an init container": {func(w *world) { next := rel(mariadb, "10.0-rev1-build1.2"); w.stage(next); w.offer("10.0-rev1", next) }, "set aside; expects velum 4.0.0-rev1-build1.1 anew; expects db 10.0-rev1-build1.2 anew at first; " + back},
		"a rebuild of an init container that is gone": {func(w *world) {
			next := rel(mariadb, "10.0-rev1-build1.2")
			w.stage(next)
			w.offer("10.0-rev1", next)
			w.inv.Containers = w.inv.Containers[:1]
		}, "set aside; expects velum 4.0.0-rev1-build1.1 anew; expects db 10.0-rev1-build1.2 anew at first; " + back},
		"its container does not run": {func(w *world) { w.answers(rebuild); w.stops("velum.yaml") }, "set aside; expects velum 4.0.0-rev1-build1.2 anew; " + back + "; did not run: velum, db"},
		"its container was just restarted": {func(w *world) {
			w.answers(rebuild)
			c := w.container("velum.yaml", "velum", first)
			c.Restarts, c.StartedAt = 3, now.Add(-time.Second)
		}, "stops velum/velum; expects velum 4.0.0-rev1-build1.2; " + back},
		"its init container is gone": {func(w *world) { w.answers(rebuild); w.inv.Containers = w.inv.Containers[:1] }, "stops velum/velum; expects velum 4.0.0-rev1-build1.2; " + back},
		"its template has one more": {func(w *world) {
			w.template("velum.yaml", "velum="+velum+":4.0.0-rev1", "init:db="+mariadb+":10.0-rev1", "more="+mariadb+":10.0-rev1")
		}, "set aside; writes velum:4.0.0-rev1 Always, mariadb:10.0-rev1 Always, mariadb:10.0-rev1 Always; expects velum 4.0.0-rev1-build1.1 anew; expects more 10.0-rev1-build1.1 anew; expects db 10.0-rev1-build1.1 anew at first; " + back},
		"just restarted, and not known": {func(w *world) {
			w.answers(rebuild)
			c := w.container("velum.yaml", "velum", patch)
			c.Restarts, c.StartedAt = 3, now.Add(-time.Second)
		}, "stops velum/velum; expects velum 4.0.0-rev1-build1.2; " + back + "; did not run: velum, db"},
		"nothing ran well before": {func(w *world) { w.answers(rebuild); w.rec.Good = nil }, "stops velum/velum; expects velum 4.0.0-rev1-build1.2; does not return: no other release is known to have run well"},
		"IfNotPresent": {func(w *world) {
			w.policy.PullPolicy = manifests.PullIfNotPresent
			w.wrote("velum.yaml", text("velum", "IfNotPresent", "velum="+velum+":4.0.0-rev1", "init:db="+mariadb+":10.0-rev1"))
			w.answers(rebuild)
		}, "stops velum/velum; pulls first; expects velum 4.0.0-rev1-build1.2; " + back},
		"the configuration lists the pod manifest": {func(w *world) {
			w.policy.Manage = map[string]bool{"velum.yaml": true}
			w.template("velum.yaml")
			w.answers(revision)
		}, "set aside; writes velum:4.0.0-rev2 Always, mariadb:10.0-rev1 Always; expects velum 4.0.0-rev2-build2.1 anew; expects db 10.0-rev1-build1.1 anew at first; " + back},
		"its pull policy is configured": {func(w *world) {
			w.policy.Manage, w.policy.ManagedPullPolicy = map[string]bool{"velum.yaml": true}, manifests.PullIfNotPresent
			w.template("velum.yaml")
		}, "set aside; writes velum:4.0.0-rev1 IfNotPresent, mariadb:10.0-rev1 IfNotPresent; pulls first; expects velum 4.0.0-rev1-build1.1 anew; expects db 10.0-rev1-build1.1 anew at first; " + back},
		"a removal":        {func(w *world) { w.template("velum.yaml"); w.template("o.yaml", "o="+velum+":1") }, "removes"},
		"after a rollback": {func(w *world) { w.rolledBack(rebuild); w.answers(revision) }, "set aside; writes velum:4.0.0-rev2 Always, mariadb:10.0-rev1-build1.1@sha256:e25 IfNotPresent; expects velum 4.0.0-rev2-build2.1 anew; expects db 10.0-rev1-build1.1 on the node anew at first; " + back},
		"a digest that a person wrote": {func(w *world) {
			w.wrote("velum.yaml", text("velum", "Always", "velum="+velum+":4.0.0-rev1", "init:db="+mariadb+":10.0-rev1@"+firstDB.Digest.String()))
			w.policy.Manage = map[string]bool{"velum.yaml": true}
			w.template("velum.yaml")
			w.answers(revision)
		}, "set aside; writes velum:4.0.0-rev2 Always, mariadb:10.0-rev1@sha256:e25 Always; expects velum 4.0.0-rev2-build2.1 anew; returns to velum:4.0.0-rev1-build1.1@sha256:86d IfNotPresent, mariadb:10.0-rev1@sha256:e25 Always"},
	}, func(w *world) string {
		w.approve()
		person := restarts(step(t, w.decide(), plan.StepApply))
		w.policy.Auto, w.rec.Approved = true, nil
		if p := w.decide(); !strings.HasPrefix(of(p, "velum.yaml"), policy.ChangeRemove) {
			if auto := restarts(step(t, p, plan.StepApply)); auto != person {
				return person + " || " + auto
			}
		}
		return person
	})

	w := two()
	w.answers(revision)
	w.approve()
	s := step(t, w.decide(), plan.StepApply)
	assert.Equal(t, []string{release.Key(velum, revision.Digest)}, s.Needs)
	assert.Equal(t, []string{"velum"}, s.Apply.Sandboxes)
	assert.Equal(t, record.PinnedImage{
		Pin: release.Pin{Repository: velum, Digest: revision.Digest}, Config: revision.Config, Tag: revision.Long, Follow: revision.Tag,
	}, s.Apply.Digests["container velum"])
	assert.Equal(t, []record.Healthy{
		{Container: "velum", Place: "container velum", Config: revision.Config, Pin: release.Pin{Repository: velum, Digest: revision.Digest}},
		{Container: "db", Place: "initContainer db", Config: firstDB.Config, Pin: release.Pin{Repository: mariadb, Digest: firstDB.Digest}},
	}, s.Healthy())
	at, is := s.Apply.Rollback.Images[s.Apply.Expect[0].Place()]
	assert.True(t, is)
	assert.Equal(t, first.Digest, at.Digest)
}

// A release that kubelet started gets a health check, and a pending rollback is applied.
func TestHealthChecksAndRollbacks(t *testing.T) {
	t.Parallel()
	pending := func(w *world) record.Override {
		was := node.Find(w.inv.PodManifests, "velum.yaml").Data
		o := w.rolledBack(rebuild)
		o.Pending = true
		w.rec.Overrides.Set("velum.yaml", o)
		w.wrote("velum.yaml", was)
		return o
	}
	each(t, running, map[string]row{
		"kubelet took a rebuild": {func(w *world) { w.container("velum.yaml", "velum", rebuild); w.answers(rebuild) }, " | verify velum.yaml"},
		"the same image under another digest": {func(w *world) {
			w.container("velum.yaml", "velum", rebuild).Image = first.Config
			w.answers(rebuild)
		}, " | "},
		"it has failed, and runs for a while": {func(w *world) {
			w.container("velum.yaml", "velum", rebuild).StartedAt = now.Add(time.Second - time.Minute)
			w.answers(rebuild)
			w.policy.Settle = time.Minute
			w.rec.Failed.Set("velum.yaml", record.Failure{Running: "velum=" + rebuild.Digest.String()})
		}, " | "},
		"it has failed, and runs as long as a health check takes": {func(w *world) {
			w.container("velum.yaml", "velum", rebuild).StartedAt = now.Add(-time.Minute)
			w.answers(rebuild)
			w.policy.Settle = time.Minute
			w.rec.Failed.Set("velum.yaml", record.Failure{Running: "velum=" + rebuild.Digest.String()})
		}, " | verify velum.yaml"},
		"it has failed, and something newer is offered": {func(w *world) {
			w.container("velum.yaml", "velum", rebuild).Running = false
			w.offer("4.0.0-rev1", rebuild, revision)
			w.rec.Failed.Set("velum.yaml", record.Failure{Running: "velum=" + rebuild.Digest.String()})
		}, "revision | stage 4.0.0-rev2-build2.1; keep velum.yaml"},
		"another one has failed": {func(w *world) {
			w.container("velum.yaml", "velum", rebuild).StartedAt = now.Add(-time.Second)
			w.answers(rebuild)
			w.policy.Settle = time.Minute
			w.rec.Failed.Set("velum.yaml", record.Failure{Running: "velum=" + first.Digest.String()})
		}, " | verify velum.yaml"},
		"no release of this tag is known to have run well": {func(w *world) { w.rec.Good = nil }, " | "},
		"a rollback": {func(w *world) { pending(w) }, " | roll back velum.yaml"},
		"a rollback, and something newer is offered": {func(w *world) { pending(w); w.answers(revision) }, " | roll back velum.yaml"},
		"a rollback on a busy node":                  {func(w *world) { pending(w); w.inv.Busy = "busy" }, "busy: busy | "},
		"a rollback that holds do not delay":         {func(w *world) { pending(w); w.holds("*") }, " | roll back velum.yaml"},
		"a rollback whose template is garbled":       {func(w *world) { pending(w); w.templateText("velum.yaml", []byte("kind: [")) }, "template: line 1: did not find expected node content | "},
		"a rollback of what a person edited":         {func(w *world) { pending(w); w.edit("velum.yaml", "# mine\n") }, " | write velum.yaml"},
		"a rollback that was written":                {func(w *world) { w.wrote("velum.yaml", []byte(pending(w).Data)) }, " | roll back velum.yaml"},
		"what runs after a rollback":                 {func(w *world) { w.rolledBack(rebuild); w.answers(rebuild) }, " | "},
		"an edit of it, before kubelet starts":       {func(w *world) { w.rolledBack(rebuild); w.edit("velum.yaml", "    tty: true\n"); w.inv.Containers = nil }, "convert; staged | keep velum.yaml"},
		"another tag in it, before kubelet starts": {func(w *world) {
			w.rolledBack(rebuild)
			w.disk("velum.yaml", text("velum", "Always", "velum="+velum+":4.0.0-rev7"))
			w.inv.Containers = nil
		}, "unresolved: r.io/caasp/velum:4.0.0-rev7: <nil> | "},
		"an older /etc instead of it": {func(w *world) {
			w.rolledBack(rebuild)
			w.wrote("velum.yaml", text("velum", "Always", "velum="+velum+":4.0.0-rev1"))
			w.answers(rebuild)
			w.held(velum+":4.0.0-rev1", first.Digest)
			w.inv.Containers = nil
		}, " | roll back velum.yaml"},
		"an older /etc, and it runs": {func(w *world) {
			w.rolledBack(rebuild)
			w.wrote("velum.yaml", text("velum", "Always", "velum="+velum+":4.0.0-rev1"))
			w.container("velum.yaml", "velum", rebuild)
			w.answers(rebuild)
		}, "rebuild; staged | keep velum.yaml; verify velum.yaml"},
	}, (*world).says)

	w := running()
	o := pending(w)
	s := step(t, w.decide(), plan.StepRollBack)
	assert.Equal(t, "set aside; writes velum:4.0.0-rev1-build1.1@sha256:86d IfNotPresent; expects velum 4.0.0-rev1-build1.1 on the node anew", restarts(s))
	_, err := plan.StepTo(record.Override{Data: "kind: ["}, s.Was, true, w.inv.ByPod(nil), nil)
	assert.ErrorContains(t, err, "velum.yaml: ")
	_, err = plan.StepTo(o, node.PodFile{Name: "velum.yaml", Data: []byte("kind: [")}, true, w.inv.ByPod(nil), nil)
	assert.ErrorContains(t, err, "velum.yaml: ")
}

// Only releases without any use are removed from the node; the others stay pinned.
func TestPrune(t *testing.T) {
	t.Parallel()
	older := rel(velum, "3.9.0-rev4-build2.1")
	updated := func() *world { // the node has an old release that is not a rollback target any more
		w := running()
		w.stage(older)
		return w
	}
	foreign := func(w *world) {
		for _, name := range []string{velum + ":3.9.0-rev4", velum + ":latest", "docker.io/library/busybox:1", mariadb + ":10.0-rev1"} {
			w.held(name, digest.FromString(name))
		}
	}
	aliases := func(w *world) {
		w.held(velum+"@"+older.Digest.String(), older.Digest)
		w.held(older.Config.String(), older.Digest)
	}
	each(t, updated, map[string]row{
		"nothing needs it":  {func(*world) {}, "prune r.io/caasp/velum:3.9.0-rev4-build2.1 | 4.0.0-rev1-build1.1"},
		"a rollback target": {func(w *world) { w.ran("velum.yaml", "velum", first, older) }, " | same"},
		"a set that was begun": {func(w *world) {
			w.rec.Sets.Set(set, record.BegunSet{Pods: map[string]record.SetPod{"o": {Before: map[string]release.Pin{"velum": {Repository: velum, Digest: older.Digest}}}}})
		}, " | same"},
		"the new one crashes": {func(w *world) { w.stops("velum.yaml") }, " | 4.0.0-rev1-build1.1"},
		"another pod uses it": {func(w *world) { w.inv.Used = []digest.Digest{older.Config} }, " | 4.0.0-rev1-build1.1"},
		"a pod is unclear":    {func(w *world) { w.disk("other.yaml", []byte("kind: [")) }, " | same"},
		"its image is of another": {func(w *world) {
			w.disk("o.yaml", text("o", "", "o="+mariadb+":10.0"))
			w.offer("10.0", release.Release{Repository: mariadb, Tag: "10.0", Digest: older.Digest})
		}, "stage 10.0 | 4.0.0-rev1-build1.1, sha256:5f5ac6f8c838c8ca4d37e50f1bc9a3e966034848c311a4dd93b026aaedbb5d41"},
		"staged and overtaken": {func(w *world) {
			w.stage(rebuild)
			next := rel(velum, "4.0.0-rev1-build1.3")
			w.answers(next)
			w.stage(next)
		}, "prune r.io/caasp/velum:3.9.0-rev4-build2.1, r.io/caasp/velum:4.0.0-rev1-build1.2 | 4.0.0-rev1-build1.1, 4.0.0-rev1-build1.3"},
		"foreign ones":           {foreign, "prune r.io/caasp/velum:3.9.0-rev4-build2.1 | 4.0.0-rev1-build1.1"},
		"foreign ones, as asked": {func(w *world) { foreign(w); w.policy.Prune.Unstaged = true }, "prune r.io/caasp/velum:3.9.0-rev4, r.io/caasp/velum:3.9.0-rev4-build2.1 | 4.0.0-rev1-build1.1"},
		"its aliases":            {aliases, "prune r.io/caasp/velum:3.9.0-rev4-build2.1, r.io/caasp/velum@sha256:5f5ac6f8c838c8ca4d37e50f1bc9a3e966034848c311a4dd93b026aaedbb5d41, sha256:be474d83232a0c217aee6e88a5d10006e48b765ccaa1a2c4ff1e7240df3f7e90 | 4.0.0-rev1-build1.1"},
		"and another name":       {func(w *world) { aliases(w); w.held("docker.io/someone/else:1", older.Digest) }, "prune r.io/caasp/velum:3.9.0-rev4-build2.1 | 4.0.0-rev1-build1.1"},
		"two names of a foreign one": {func(w *world) {
			w.policy.Prune.Unstaged = true
			d := digest.FromString("old")
			for _, name := range []string{velum + ":3.9.0-rev3", velum + ":3.9.0-rev3-build2.1", velum + "@" + d.String()} {
				w.held(name, d)
			}
		}, "prune r.io/caasp/velum:3.9.0-rev3, r.io/caasp/velum:3.9.0-rev3-build2.1, r.io/caasp/velum:3.9.0-rev4-build2.1, r.io/caasp/velum@sha256:cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4 | 4.0.0-rev1-build1.1"},
		"many": {func(w *world) {
			for _, build := range []string{"1", "2", "3", "4", "5"} {
				w.stage(rel(velum, "3.8.0-rev1-build"+build))
			}
		}, "prune r.io/caasp/velum:3.8.0-rev1-build1, r.io/caasp/velum:3.8.0-rev1-build2, r.io/caasp/velum:3.8.0-rev1-build3, r.io/caasp/velum:3.8.0-rev1-build4, 2 more | 4.0.0-rev1-build1.1"},
		"an init container that is gone": {func(w *world) {
			w.has("velum.yaml", "velum="+velum+":4.0.0-rev1", "init:db="+velum+":4.0.0-rev1")
		}, "prune r.io/caasp/velum:3.9.0-rev4-build2.1 | 4.0.0-rev1-build1.1"},
		"an init container and its pod are gone": {func(w *world) {
			w.has("velum.yaml", "velum="+velum+":4.0.0-rev1", "init:db="+velum+":4.0.0-rev1")
			w.inv.Containers = nil
		}, " | 4.0.0-rev1-build1.1"},
		"a volume's image may be mounted": {func(w *world) {
			with := func(pull string) []byte {
				return append(text("velum", pull, "velum="+mariadb+":10.0-rev1"), "  volumes:\n  - name: data\n    image:\n      reference: "+velum+":4.0.0-rev1\n"...)
			}
			w.templateText("velum.yaml", with(""))
			w.wrote("velum.yaml", with("Always"))
			w.runs("velum.yaml", "velum", firstDB)
			w.offer("10.0-rev1", firstDB)
		}, "keep velum.yaml | 10.0-rev1-build1.1, 4.0.0-rev1-build1.1"},
	}, func(w *world) string { p := w.decide(); return steps(p) + " | " + w.pins(p) })
}

// The parts of the record that the plan needs.
func TestInUse(t *testing.T) {
	t.Parallel()
	w := offering(rebuild)
	w.disk("broken.yaml", []byte("kind: ["))
	w.edit("velum.yaml", "  - name: mine\n    image: "+mariadb+":1\n")
	p := w.decide()
	w.inv.Catalog.Catalog = "r.io/catalog:prod"
	use := plan.InUse(p, w.offers, w.inv, now)
	assert.Equal(t, map[string]bool{"broken.yaml": true, "velum.yaml": true}, use.Wrote)
	assert.Equal(t, map[string]bool{
		"r.io/catalog:prod": true, velum: true, velum + ":4.0.0-rev1": true, velum + ":4.0.0-rev1 (as written)": true,
	}, use.Questions)
	assert.Equal(t, map[string]bool{release.Key(velum, first.Digest): true, release.Key(velum, rebuild.Digest): true}, use.Releases)
	pod := use.Pods["velum.yaml"]
	assert.Equal(t, map[string]bool{"velum": true, "mine": true}, pod.Contains)
	assert.True(t, pod.AllRun)
	assert.False(t, pod.Settled)
	assert.Equal(t, rebuild.Digest, pod.Images[0].Target)
	assert.True(t, use.Pods["broken.yaml"].Broken)
}

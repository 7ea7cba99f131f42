// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

func (w *world) saysAtBoot() string { return boots(w.atBoot()) }

// brings adds a template of velum with that tag, as an update of the system does.
func (w *world) brings(tag string) { w.template("velum.yaml", "velum="+velum+":"+tag) }

func (w *world) holds(image string) {
	w.rec.Holds.Set(image, record.PersonHold{At: now, Reason: "wait"})
}

// startsFromTheNode returns running with IfNotPresent.
func startsFromTheNode() *world {
	w := empty()
	w.policy.PullPolicy = manifests.PullIfNotPresent
	w.has("velum.yaml", "velum="+velum+":4.0.0-rev1")
	w.runs("velum.yaml", "velum", first)
	w.held(velum+":4.0.0-rev1", first.Digest)
	return w
}

// An update of the system brought other templates: the files that Boot writes or keeps, and why.
func TestAtBoot(t *testing.T) {
	t.Parallel()
	each(t, running, map[string]row{
		"nothing is new":          {func(*world) {}, ""},
		"another version":         {func(w *world) { w.brings("4.0.1-rev1") }, "write velum.yaml: its template has changed: velum:4.0.1-rev1 Always"},
		"an older one":            {func(w *world) { w.brings("3.9.9-rev1") }, ""},
		"an offer is no template": {func(w *world) { w.answers(revision); w.stage(revision) }, ""},
		"only another field": {func(w *world) {
			w.templateText("velum.yaml", append(text("velum", "", "velum="+velum+":__TAG__"), "  hostNetwork: true\n"...))
		}, "write velum.yaml: its template has changed: velum:4.0.0-rev1 Always, hostNetwork"},
		"only a comment": {func(w *world) {
			w.templateText("velum.yaml", append([]byte("# new\n"), text("velum", "", "velum="+velum+":__TAG__")...))
		}, ""},
		"a digest":                           {func(w *world) { w.template("velum.yaml", "velum="+velum+"@"+first.Digest.String()) }, "write velum.yaml: its template has changed: velum@sha256:86d "},
		"a template that is none":            {func(w *world) { w.templateText("velum.yaml", []byte("kind: [Pod")) }, "leave velum.yaml: template: line 1: did not find expected ',' or ']'"},
		"another container":                  {func(w *world) { w.template("velum.yaml", "velum="+velum+":4.0.0-rev1", "db="+mariadb+":10.0-rev1") }, "write velum.yaml: its template has changed: velum:4.0.0-rev1 Always, mariadb:10.0-rev1 Always"},
		"another repository":                 {func(w *world) { w.template("velum.yaml", "velum=r.io/caasp45/velum:4.0.0-rev1") }, "write velum.yaml: its template has changed: r.io/caasp45/velum:4.0.0-rev1 Always"},
		"another repository, higher":         {func(w *world) { w.template("velum.yaml", "velum=r.io/caasp45/velum:4.0.1-rev1") }, "write velum.yaml: its template has changed: r.io/caasp45/velum:4.0.1-rev1 Always"},
		"another repository, lower":          {func(w *world) { w.template("velum.yaml", "velum=r.io/caasp45/velum:3.9.9-rev1") }, "leave velum.yaml: r.io/caasp45/velum:3.9.9-rev1: lower than 4.0.0-rev1"},
		"a short tag":                        {func(w *world) { w.brings("4.0.1") }, "write velum.yaml: its template has changed: velum:4.0.1 Always"},
		"a short tag of which more is known": {func(w *world) { w.brings("4.0.1"); w.offer("4.0.1", patch) }, "write velum.yaml: its template has changed: velum:4.0.1-rev1 Always"},
		"an edited pod manifest":             {func(w *world) { w.edit("velum.yaml", "  hostNetwork: true\n") }, "leave velum.yaml: it was changed since the agent wrote it"},
		"it was written and not recorded":    {func(w *world) { w.rec.Wrote.Set("velum.yaml", digest.FromString("older")) }, "leave velum.yaml: it is rendered"},
		"it was never written by us":         {func(w *world) { w.rec.Wrote.Delete("velum.yaml") }, ""},
		"a person's comment":                 {func(w *world) { w.edit("velum.yaml", "# mine\n") }, ""},
		"another operation":                  {func(w *world) { w.brings("4.0.1-rev1"); w.inv.Busy = "the grain is true" }, "leave velum.yaml: the grain is true"},
		"another operation, nothing new":     {func(w *world) { w.inv.Busy = "the grain is true" }, ""},
		"a hold on all":                      {func(w *world) { w.brings("4.0.1-rev1"); w.holds("*") }, "leave velum.yaml: hold: everything: wait"},
		"a hold on what is replaced":         {func(w *world) { w.template("velum.yaml", "db="+mariadb+":10.0-rev1"); w.holds(velum) }, "leave velum.yaml: hold: r.io/caasp/velum: wait"},
		"the repository of a hold is left":   {func(w *world) { w.template("velum.yaml", "velum=r.io/caasp45/velum:4.0.1-rev1"); w.holds(velum) }, "leave velum.yaml: hold: r.io/caasp/velum: wait"},
		"frozen":                             {func(w *world) { w.brings("4.0.1-rev1"); w.policy.Freeze = now.Add(time.Hour) }, "leave velum.yaml: freeze: no updates before 2026-05-01T13:00:00Z"},
		"a rule of the configuration":        {func(w *world) { w.brings("4.0.1-rev1"); w.rule(func(r *policy.Rule) { r.Deny = []string{"4.0.1*"} }) }, "leave velum.yaml: 4.0.1-rev1 refused by deny: matches 4.0.1*"},
		"signatures": {func(w *world) {
			w.brings("4.0.1-rev1")
			w.rule(func(r *policy.Rule) { r.Signatures = policy.SignaturesRequire })
		}, "leave velum.yaml: r.io/caasp/velum:4.0.1-rev1: no signature is known"},
		"signed": {func(w *world) {
			w.brings("4.0.1-rev1")
			w.offer("4.0.1-rev1", patch)
			w.rec.Signed.Set(release.Key(velum, patch.Digest), "key")
			w.rule(func(r *policy.Rule) { r.Signatures = policy.SignaturesRequire })
		}, "write velum.yaml: its template has changed: velum:4.0.1-rev1 Always"},
		"the configuration follows another tag": {func(w *world) { w.rule(func(r *policy.Rule) { r.Follow = "4.0.1-rev1" }) }, ""},
		"a rewrite":                             {func(w *world) { w.policy.Rewrites = []manifests.Rewrite{{From: "r.io", To: "m.io/suse"}} }, "leave velum.yaml: m.io/suse/caasp/velum:4.0.0-rev1: from another registry than r.io/caasp/velum"},
		"only another pull policy":              {func(w *world) { w.policy.PullPolicy = manifests.PullIfNotPresent }, "leave velum.yaml: only its pull policy would change"},
		"denied":                                {func(w *world) { w.brings("4.0.1-rev1"); w.offer("4.0.1-rev1", patch); w.deny(patch) }, "leave velum.yaml: 4.0.1-rev1-build1.1 refused by failed: velum.yaml: "},
		"denied by the last answer": {func(w *world) {
			w.brings("4.0.1-rev1")
			w.offer("4.0.1-rev1", patch)
			w.rec.Offers.Set(velum+":4.0.1-rev1 (as written)", record.Answer{
				At: now.Add(-2 * time.Hour), Follow: release.Release{Repository: velum, Tag: "4.0.1-rev1", Digest: first.Digest},
			})
			w.deny(patch)
		}, "leave velum.yaml: 4.0.1-rev1-build1.1 refused by failed: velum.yaml: "},
		"denied by what the node has, and the registry counts": {func(w *world) {
			w.brings("4.0.1-rev1")
			w.offer("4.0.1-rev1", rel(velum, "4.0.1-rev1-build1.2"))
			w.held(velum+":4.0.1-rev1", patch.Digest)
			w.deny(patch)
		}, "write velum.yaml: its template has changed: velum:4.0.1-rev1 Always"},
		"a new pod":               {func(w *world) { w.template("db.yaml", "db="+mariadb+":10.0-rev1") }, "write db.yaml: its template is new: mariadb:10.0-rev1 Always"},
		"a new pod without a tag": {func(w *world) { w.template("db.yaml", "db="+mariadb+":__TAG__") }, "leave db.yaml: render: no tag is known for __TAG__: line 8: spec.containers[0].image: r.io/caasp/mariadb:__TAG__"},
		"without any template":    {func(w *world) { w.template("velum.yaml") }, ""},
		"its template is gone":    {func(w *world) { w.template("db.yaml", "db="+mariadb+":__TAG__"); w.template("velum.yaml") }, "leave db.yaml: render: no tag is known for __TAG__: line 8: spec.containers[0].image: r.io/caasp/mariadb:__TAG__; remove velum.yaml: its template is gone"},
		"gone and held":           {func(w *world) { w.templateText("db.yaml", []byte("kind: [")); w.template("velum.yaml"); w.holds("*") }, "leave db.yaml: template: line 1: did not find expected node content; leave velum.yaml: hold: everything: wait"},
		"gone and its image held": {func(w *world) { w.templateText("db.yaml", []byte("kind: [")); w.template("velum.yaml"); w.holds(velum) }, "leave db.yaml: template: line 1: did not find expected node content; leave velum.yaml: hold: r.io/caasp/velum: wait"},
		"gone and frozen": {func(w *world) {
			w.templateText("db.yaml", []byte("kind: ["))
			w.template("velum.yaml")
			w.policy.Freeze = now.Add(time.Hour)
		}, "leave db.yaml: template: line 1: did not find expected node content; leave velum.yaml: freeze: no updates before 2026-05-01T13:00:00Z"},
		"of the control plane, and foreign": {func(w *world) {
			w.template("etcd.yaml", "etcd=r.io/caasp/etcd:4.0.1")
			w.disk("etcd.yaml", text("etcd", "", "etcd=r.io/caasp/etcd:4.0.0"))
			w.disk("foreign.yaml", text("foreign", "", "db="+mariadb+":10.0"))
			w.inv.Busy = "the grain is true"
		}, ""},
		"two files of one pod": {func(w *world) {
			w.disk("two.yaml", text("velum", "", "velum="+velum+":4.0.0-rev1"))
			w.brings("4.0.1-rev1")
		}, "leave two.yaml: duplicate: two.yaml and velum.yaml define the same pod default/velum: kubelet runs the one that it read last; leave velum.yaml: duplicate: two.yaml and velum.yaml define the same pod default/velum: kubelet runs the one that it read last"},
		"a file that must not be written": {func(w *world) {
			w.inv.PodManifests[0] = node.PodFile{Name: "velum.yaml", Err: errors.New("is a symlink")}
		}, "leave velum.yaml: is a symlink"},
	}, (*world).saysAtBoot)
	each(t, startsFromTheNode, map[string]row{
		"not on the node":                {func(w *world) { w.brings("4.0.1-rev1") }, "leave velum.yaml: r.io/caasp/velum:4.0.1-rev1: not on the node"},
		"what is on the node is unknown": {func(w *world) { w.brings("4.0.1-rev1"); w.inv.Held = nil }, "leave velum.yaml: r.io/caasp/velum:4.0.1-rev1: not on the node"},
		"on the node":                    {func(w *world) { w.brings("4.0.1-rev1"); w.held(velum+":4.0.1-rev1", patch.Digest) }, "write velum.yaml: its template has changed: velum:4.0.1-rev1 IfNotPresent"},
		"denied": {func(w *world) {
			w.brings("4.0.1-rev1")
			w.offer("4.0.1-rev1", first)
			w.held(velum+":4.0.1-rev1", patch.Digest)
			w.deny(patch)
		}, "leave velum.yaml: 4.0.1-rev1 refused by failed: velum.yaml: "},
		"a new pod starts late, and not worse": {func(w *world) { w.template("db.yaml", "db="+mariadb+":10.0-rev1") }, "write db.yaml: its template is new: mariadb:10.0-rev1 IfNotPresent"},
		"another container": {func(w *world) {
			w.template("velum.yaml", "velum="+velum+":4.0.0-rev1", "init:db="+mariadb+":10.0-rev1")
		}, "leave velum.yaml: r.io/caasp/mariadb:10.0-rev1: not on the node"},
	}, (*world).saysAtBoot)
}

// A pod that was rolled back keeps its digest, until a template brings a release above it.
func TestAtBootAfterARollback(t *testing.T) {
	t.Parallel()
	pinned := func() *world { w := running(); w.rolledBack(rebuild); return w }
	each(t, pinned, map[string]row{
		"nothing is new": {func(*world) {}, ""},
		"only another field": {func(w *world) {
			w.templateText("velum.yaml", append(text("velum", "", "velum="+velum+":__TAG__"), "  hostNetwork: true\n"...))
		}, ""},
		"another version":      {func(w *world) { w.brings("4.0.1-rev1") }, "write velum.yaml: its template has changed: velum:4.0.1-rev1 Always ends container velum"},
		"the denied release":   {func(w *world) { w.brings("4.0.1-rev1"); w.offer("4.0.1-rev1", patch); w.deny(patch) }, "leave velum.yaml: 4.0.1-rev1-build1.1 refused by failed: velum.yaml:  ends container velum"},
		"a person edited it":   {func(w *world) { w.edit("velum.yaml", "  hostNetwork: true\n") }, "leave velum.yaml: it was changed since the agent wrote it"},
		"or wrote another tag": {func(w *world) { w.disk("velum.yaml", text("velum", "Always", "velum="+velum+":4.0.0-rev7")) }, "leave velum.yaml: it was changed since the agent wrote it"},
		"an older /etc": {func(w *world) {
			w.disk("velum.yaml", text("velum", "Always", "velum="+velum+":4.0.0-rev1"))
			w.offer("4.0.0-rev1", rebuild)
			w.stops("velum.yaml")
		}, "write velum.yaml: did not come up: velum:4.0.0-rev1-build1.1@sha256:86d IfNotPresent"},
		"an older /etc with a short tag": {func(w *world) {
			w.disk("velum.yaml", text("velum", "Always", "velum="+velum+":4.0.0"))
			w.offer("4.0.0", rebuild)
			w.stops("velum.yaml")
		}, "write velum.yaml: did not come up: velum:4.0.0-rev1-build1.1@sha256:86d IfNotPresent"},
		"an older /etc that runs": {func(w *world) {
			w.disk("velum.yaml", text("velum", "Always", "velum="+velum+":4.0.0-rev1"))
			w.offer("4.0.0-rev1", rebuild)
		}, "leave velum.yaml: it was changed since the agent wrote it"},
		"the rollback is pending": {func(w *world) {
			w.disk("velum.yaml", text("velum", "Always", "velum="+velum+":4.0.0-rev1"))
			o := w.rec.Overrides["velum.yaml"]
			o.Pending = true
			w.rec.Overrides.Set("velum.yaml", o)
		}, "write velum.yaml: did not come up: velum:4.0.0-rev1-build1.1@sha256:86d IfNotPresent"},
		"it returned above its tag": {func(w *world) {
			o := w.rec.Overrides["velum.yaml"]
			at := o.Images["container velum"]
			at.Tag = "4.0.0-rev3-build1.3"
			o.Images["container velum"] = at
			w.brings("4.0.0-rev2")
		}, "leave velum.yaml: r.io/caasp/velum:4.0.0-rev2: lower than the release that the pod was rolled back to ends container velum"},
	}, (*world).saysAtBoot)
	two := func() *world {
		w := empty()
		w.has("velum.yaml", "velum="+velum+":4.0.0-rev1", "db="+mariadb+":10.0-rev1")
		w.runs("velum.yaml", "velum", first)
		w.runs("velum.yaml", "db", firstDB)
		w.rolledBack(nextDB)
		return w
	}
	each(t, two, map[string]row{
		"one moves on": {func(w *world) { w.template("velum.yaml", "velum="+velum+":4.0.1-rev1", "db="+mariadb+":10.0-rev1") }, "write velum.yaml: its template has changed: velum:4.0.1-rev1 Always, mariadb:10.0-rev1-build1.1@sha256:e25 IfNotPresent ends container velum"},
		"one is gone":  {func(w *world) { w.brings("4.0.0-rev1") }, "write velum.yaml: its template has changed: velum:4.0.0-rev1-build1.1@sha256:86d IfNotPresent"},
	}, (*world).saysAtBoot)
}

// At a boot a release of a set starts with the rest of the set, or not at all.
func TestAtBootWithASet(t *testing.T) {
	t.Parallel()
	const file = "db.yaml"
	next := rel(mariadb, "10.1-rev1-build1.1")
	higher := rel(mariadb, "10.1-rev1-build1.2")
	two := func() *world {
		w := running()
		w.has(file, "db="+mariadb+":10.0-rev1")
		w.runs(file, "db", firstDB)
		w.catalog("", first, firstDB)
		w.catalog("caasp-4.5.2", patch, next)
		return w
	}
	bringsDB := func(w *world) { w.template(file, "db="+mariadb+":10.1-rev1") }
	each(t, two, map[string]row{
		"both":               {func(w *world) { w.brings("4.0.1-rev1"); bringsDB(w) }, "write db.yaml: its template has changed: mariadb:10.1-rev1@sha256:154 Always; write velum.yaml: its template has changed: velum:4.0.1-rev1@sha256:605 Always"},
		"one":                {func(w *world) { w.brings("4.0.1-rev1") }, "leave velum.yaml: set: caasp-4.5.2: db.yaml does not start with r.io/caasp/mariadb:10.1-rev1-build1.1"},
		"the other":          {bringsDB, "leave db.yaml: set: caasp-4.5.2: velum.yaml does not start with r.io/caasp/velum:4.0.1-rev1-build1.1"},
		"one is held":        {func(w *world) { w.brings("4.0.1-rev1"); bringsDB(w); w.holds(mariadb) }, "leave db.yaml: hold: r.io/caasp/mariadb: wait; leave velum.yaml: set: caasp-4.5.2: db.yaml does not start with r.io/caasp/mariadb:10.1-rev1-build1.1"},
		"one runs it":        {func(w *world) { w.brings("4.0.1-rev1"); w.runs(file, "db", next) }, "write velum.yaml: its template has changed: velum:4.0.1-rev1@sha256:605 Always"},
		"or a higher one":    {func(w *world) { w.brings("4.0.1-rev1"); w.runs(file, "db", higher) }, "write velum.yaml: its template has changed: velum:4.0.1-rev1@sha256:605 Always"},
		"one cannot be read": {func(w *world) { w.brings("4.0.1-rev1"); w.templateText(file, []byte("kind: [")) }, "leave db.yaml: template: line 1: did not find expected node content; leave velum.yaml: set: caasp-4.5.2: db.yaml does not start with r.io/caasp/mariadb:10.1-rev1-build1.1"},
	}, (*world).saysAtBoot)
}

// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"cmp"
	"maps"
	"slices"
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
	"github.com/kubic-project/image-update-agent/agent/source"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

const (
	velum   = "r.io/caasp/velum"
	mariadb = "r.io/caasp/mariadb"
)

var (
	now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

	// The releases of velum: the running one, a rebuild of it, a revision and a patch.
	first, rebuild, revision, patch = rel(velum, "4.0.0-rev1-build1.1"), rel(velum, "4.0.0-rev1-build1.2"),
		rel(velum, "4.0.0-rev2-build2.1"), rel(velum, "4.0.1-rev1-build1.1")
	firstDB, nextDB = rel(mariadb, "10.0-rev1-build1.1"), rel(mariadb, "10.0-rev2-build2.1")
)

// rel returns a release by its long tag.
func rel(repository, long string) release.Release {
	tag, _, _ := strings.Cut(long, "-build")
	return release.Release{
		Repository: repository, Tag: tag, Long: long, Digest: digest.FromString(repository + long),
		Build: release.Build{Config: digest.FromString("config of " + repository + long)},
	}
}

// built returns a release created some hours after now.
func built(r release.Release, hours int) release.Release {
	r.Created = now.Add(time.Duration(hours) * time.Hour)
	return r
}

// world are the arguments of Decide and AtBoot.
type world struct {
	inv    node.Inventory
	offers map[release.Question]source.Offer
	rec    record.Record
	policy policy.Policy
	now    time.Time
}

// empty returns a node without pods.
func empty() *world {
	return &world{
		inv:    node.Inventory{NodeName: "node1"},
		offers: map[release.Question]source.Offer{},
		policy: policy.Policy{
			PullPolicy: manifests.PullAlways,
			Rule:       func(string) policy.Rule { return policy.Rule{Updates: tags.Revision} },
		},
		now: now,
	}
}

// running returns a node whose pod velum.yaml runs the first release, rendered from its template and up to date.
func running() *world {
	w := empty()
	w.has("velum.yaml", "velum="+velum+":4.0.0-rev1")
	w.runs("velum.yaml", "velum", first)
	w.offer("4.0.0-rev1", first)
	return w
}

// offering returns running with a newer staged release.
func offering(next release.Release) *world {
	w := running()
	w.answers(next)
	w.stage(next)
	return w
}

// answers makes the source answer with a newer release.
func (w *world) answers(next release.Release) {
	if next.Tag == first.Tag {
		w.offer(first.Tag, next)
	} else {
		w.offer(first.Tag, first, next)
	}
}

// text returns a pod manifest with containers "name=image" and init containers "init:name=image"; pull is their pull
// policy.
func text(pod, pull string, containers ...string) []byte {
	main, inits := "  containers:\n", ""
	for _, c := range containers {
		name, image, _ := strings.Cut(c, "=")
		init, is := strings.CutPrefix(name, "init:")
		one := "  - name: " + init + "\n    image: " + image + "\n"
		if pull != "" {
			one += "    imagePullPolicy: " + pull + "\n"
		}
		if is {
			inits += one
		} else {
			main += one
		}
	}
	if inits != "" {
		inits = "  initContainers:\n" + inits
	}
	return []byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + pod + "\nspec:\n" + main + inits)
}

func put(files *[]node.PodFile, f node.PodFile) {
	*files = slices.DeleteFunc(slices.Clone(*files), func(is node.PodFile) bool { return is.Name == f.Name })
	if f.Data != nil || f.Err != nil {
		*files = append(*files, f)
	}
}

// template adds a template; without containers it removes it.
func (w *world) template(file string, containers ...string) {
	var data []byte
	if len(containers) > 0 {
		data = text(strings.TrimSuffix(file, ".yaml"), "", containers...)
	}
	w.templateText(file, data)
}

func (w *world) templateText(file string, data []byte) {
	put(&w.inv.Templates, node.PodFile{Name: file, Data: data})
}

// disk adds a pod manifest written by another program or a person.
func (w *world) disk(file string, data []byte) {
	put(&w.inv.PodManifests, node.PodFile{Name: file, Data: data})
}

// edit adds a line to a pod manifest.
func (w *world) edit(file, line string) {
	w.disk(file, append(slices.Clone(node.Find(w.inv.PodManifests, file).Data), line...))
}

// has adds a template and the pod manifest that the agent rendered from it.
func (w *world) has(file string, containers ...string) {
	w.template(file, containers...)
	w.wrote(file, text(strings.TrimSuffix(file, ".yaml"), w.policy.PullPolicy, containers...))
}

// wrote adds a pod manifest written by the agent.
func (w *world) wrote(file string, data []byte) {
	w.disk(file, data)
	w.rec.Wrote.Set(file, digest.FromBytes(data))
}

// container adds a running container of a pod.
func (w *world) container(file, name string, r release.Release) *node.Container {
	pod := strings.TrimSuffix(file, ".yaml")
	w.inv.Containers = slices.DeleteFunc(w.inv.Containers, func(c node.Container) bool {
		return c.Pod == pod+"-node1" && c.Name == name
	})
	w.inv.Containers = append(w.inv.Containers, node.Container{
		ID: pod + "/" + name, Sandbox: pod, Pod: pod + "-node1", Namespace: "default", Name: name, Running: true,
		StartedAt: now.Add(-time.Hour), Image: r.Config, Digests: []digest.Digest{r.Digest},
	})
	return &w.inv.Containers[len(w.inv.Containers)-1]
}

// runs makes a container run a known good release.
func (w *world) runs(file, name string, r release.Release) {
	w.container(file, name, r)
	w.stage(r)
	w.rec.Good.Set(record.GoodKey(file, name), record.Good{Repository: r.Repository, Running: r.Digest})
}

// stops ends all containers of a pod.
func (w *world) stops(file string) {
	for n := range w.inv.Containers {
		if c := &w.inv.Containers[n]; c.Pod == strings.TrimSuffix(file, ".yaml")+"-node1" {
			c.Running, c.ExitCode, c.Reason = false, 1, "Error"
		}
	}
}

// stage adds a release to the node, pinned and named by its long tag.
func (w *world) stage(r release.Release) {
	if !w.inv.Index().Staged(r) {
		w.inv.Held = append(w.inv.Held,
			node.HeldImage{Name: "pin of " + r.Long, Digest: r.Digest, Repository: r.Repository, Pin: true, Complete: true, Config: r.Config},
			node.HeldImage{Name: r.StagedName(), Digest: r.Digest, Repository: r.Repository, Staged: true, Config: r.Config},
		)
	}
	w.rec.Releases.Set(release.Key(r.Repository, r.Digest), r)
}

// held adds an image record of another client.
func (w *world) held(name string, d digest.Digest) {
	w.inv.Held = append(w.inv.Held, node.HeldImage{Name: name, Digest: d, Config: digest.FromString("config of " + d.String())})
}

// offer makes the source answer a question with the tag's release and newer ones, the highest first.
func (w *world) offer(tag string, follow release.Release, newer ...release.Release) {
	for _, convert := range []bool{true, false} {
		q := release.Question{Repository: follow.Repository, Tag: tag, Convert: convert}
		o := source.Offer{Question: q, Answer: record.Answer{At: now.Add(-time.Hour), Follow: follow, Newest: follow}}
		for _, r := range newer {
			o.Newer = append(o.Newer, record.Candidate{Release: r, Confirmed: true})
		}
		w.offers[q] = o
		w.rec.Offers.Set(q.String(), o.Answer)
	}
}

// approve approves the current offer.
func (w *world) approve() {
	for _, p := range w.decide().Pods {
		if p.Offer != "" {
			w.rec.Approved.Set(p.File, p.Approval(record.Approval{}, now))
		}
	}
}

func (w *world) deny(r release.Release) {
	w.rec.Denied.Set(release.Key(r.Repository, r.Digest), record.Denial{At: now, PodManifest: "velum.yaml"})
}

func (w *world) rule(change func(*policy.Rule)) {
	r := policy.Rule{Updates: tags.Revision}
	change(&r)
	w.policy.Rule = func(string) policy.Rule { return r }
}

// rolledBack pins velum.yaml to the first release by its digest, in place of another one that is denied.
func (w *world) rolledBack(from release.Release) record.Override {
	was := node.Find(w.inv.PodManifests, "velum.yaml").Data
	o, err := record.Pin(was, "did not come up", now, func(i manifests.Image) record.PinnedImage {
		g := w.rec.Good[record.GoodKey("velum.yaml", i.Container)]
		r := w.rec.Releases[release.Key(g.Repository, g.Running)]
		return record.PinnedImage{Pin: release.Pin{Repository: g.Repository, Digest: g.Running}, Config: r.Config, Tag: r.Name()}
	})
	if err != nil {
		panic(err)
	}
	o.Pending, o.From = false, digest.FromBytes(was)
	w.rec.Overrides.Set("velum.yaml", o)
	w.wrote("velum.yaml", []byte(o.Data))
	w.deny(from)
	return o
}

// catalog adds a catalog that lists releases of a set before its existing ones.
func (w *world) catalog(set string, listed ...release.Release) {
	w.inv.Catalog.Catalog, w.inv.Catalog.Version = "r.io/catalog:prod", 1
	if w.inv.Catalog.Images == nil {
		w.inv.Catalog.Images = map[string][]format.Release{}
	}
	for _, r := range listed {
		is := format.Release{Tag: r.Long, Digest: r.Digest, Set: set}
		w.inv.Catalog.Images[r.Repository] = append([]format.Release{is}, w.inv.Catalog.Images[r.Repository]...)
	}
}

// listed changes the catalog's entry of a release.
func (w *world) listed(r release.Release, change func(*format.Release)) {
	for n, is := range w.inv.Catalog.Images[r.Repository] {
		if is.Digest == r.Digest {
			change(&w.inv.Catalog.Images[r.Repository][n])
		}
	}
}

func (w *world) decide() plan.Plan {
	return plan.Decide(w.inv, w.offers, w.rec, w.policy, w.now)
}

func (w *world) atBoot() []plan.BootStep { return plan.AtBoot(w.inv, w.rec, w.policy, w.now) }

// of returns a pod's change, its holds, and its error in a plan.
func of(p plan.Plan, file string) string {
	n := slices.IndexFunc(p.Pods, func(is plan.PodPlan) bool { return is.File == file })
	if n < 0 {
		return "no pod"
	}
	pod := p.Pods[n]
	out := []string{}
	if pod.Change != "" {
		out = append(out, pod.Change)
	}
	if pod.Ready {
		out = append(out, "staged")
	}
	if len(pod.Together) > 0 {
		out = append(out, "with "+strings.Join(pod.Together, ", "))
	}
	for _, h := range pod.Holds {
		out = append(out, h.Name+": "+h.Reason)
	}
	for _, h := range pod.Waits {
		out = append(out, "waits: "+h.Name+": "+h.Reason)
	}
	if pod.Err != nil {
		out = append(out, pod.Err.Error())
	}
	return strings.Join(out, "; ")
}

// steps returns the steps of a plan as text, without pins.
func steps(p plan.Plan) string {
	var out []string
	for _, s := range p.Steps {
		switch s.Do {
		case plan.StepPin:
		case plan.StepStage:
			out = append(out, "stage "+s.Release.Name())
		default:
			out = append(out, s.String())
		}
	}
	return strings.Join(out, "; ")
}

// says returns velum.yaml's part of the plan, and its steps.
func (w *world) says() string {
	p := w.decide()
	return of(p, "velum.yaml") + " | " + steps(p)
}

// pins returns the names of the releases that a plan pins; "same" if they are already pinned.
func (w *world) pins(p plan.Plan) string {
	n := slices.IndexFunc(p.Steps, func(s plan.Step) bool { return s.Do == plan.StepPin })
	if n < 0 {
		return "same"
	}
	var out []string
	for _, pin := range p.Steps[n].Pins {
		out = append(out, w.rec.NameOf(pin.Repository, pin.Digest))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// step returns the step of a plan with a verb.
func step(t *testing.T, p plan.Plan, do plan.Verb) plan.Step {
	t.Helper()
	n := slices.IndexFunc(p.Steps, func(s plan.Step) bool { return s.Do == do })
	if !assert.GreaterOrEqual(t, n, 0, "no %s", do) {
		return plan.Step{}
	}
	return p.Steps[n]
}

// boots returns the steps of a boot with their reasons, as text.
func boots(all []plan.BootStep) string {
	var out []string
	for _, s := range all {
		does := cmp.Or(string(s.Do), "leave") + " " + s.File + ": " + s.Reason
		if s.Do == plan.StepWrite {
			does += ": " + images(s.Data)
		}
		if len(s.Ends) > 0 {
			does += " ends " + strings.Join(s.Ends, ", ")
		}
		if s.IsRendered {
			does += "it is rendered"
		}
		out = append(out, does)
	}
	return strings.Join(out, "; ")
}

// images returns the references in a pod manifest, without the registry.
func images(data []byte) string {
	file, err := manifests.Parse(data)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, i := range file.Images {
		ref := strings.TrimPrefix(i.Reference, "r.io/caasp/")
		if ref, d, named := strings.Cut(ref, "@"); named {
			out = append(out, ref+"@"+d[:10]+" "+i.PullPolicy)
			continue
		}
		out = append(out, ref+" "+i.PullPolicy)
	}
	if strings.Contains(string(data), "hostNetwork: true") {
		out = append(out, "hostNetwork")
	}
	return strings.Join(out, ", ")
}

// row is a row of a table: a change of a node, and its result.
type row struct {
	set  func(w *world)
	want string
}

func each(t *testing.T, node func() *world, rows map[string]row, says func(*world) string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		w := node()
		rows[name].set(w)
		assert.Equal(t, rows[name].want, says(w), name)
	}
}

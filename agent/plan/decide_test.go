// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// night is a window from two to four o'clock.
func night(now time.Time) (open bool, change time.Time) {
	opens := time.Date(2026, 5, 2, 2, 0, 0, 0, time.UTC)
	return !now.Before(opens), opens
}

// The offer, the staged releases and the written files of one pod.
func TestDecide(t *testing.T) {
	t.Parallel()
	each(t, running, map[string]row{
		"nothing is new":                  {func(*world) {}, " | "},
		"a rebuild":                       {func(w *world) { w.answers(rebuild) }, "rebuild | stage 4.0.0-rev1-build1.2"},
		"a revision":                      {func(w *world) { w.answers(revision) }, "revision | stage 4.0.0-rev2-build2.1; keep velum.yaml"},
		"a patch, which the rule refuses": {func(w *world) { w.answers(patch) }, " | "},
		"nothing runs yet":                {func(w *world) { w.inv.Containers, w.rec.Good = nil, nil }, " | "},
		"nothing runs, or is staged":      {func(w *world) { w.inv.Containers, w.inv.Held, w.rec.Good = nil, nil, nil }, " | stage 4.0.0-rev1-build1.1"},
		"the source does not answer":      {func(w *world) { w.offers = map[release.Question]source.Offer{} }, "unresolved: r.io/caasp/velum:4.0.0-rev1: <nil> | "},
		"all are refused, and nothing runs": {func(w *world) {
			w.inv.Containers, w.rec.Good = nil, nil
			w.rule(func(r *policy.Rule) { r.Deny = []string{"*"} })
		}, "unresolved: r.io/caasp/velum:4.0.0-rev1: 4.0.0-rev1 refused by deny: matches * | "},
		"all are refused, and it runs": {func(w *world) { w.answers(rebuild); w.rule(func(r *policy.Rule) { r.Deny = []string{"*"} }) }, " | "},
		"a placeholder is not what runs": {func(w *world) {
			w.template("velum.yaml", "velum="+velum+":__TAG__")
			w.disk("velum.yaml", text("velum", "", "velum="+velum+":__TAG__"))
			w.offer("", rebuild)
			w.rule(func(r *policy.Rule) { r.Deny = []string{"*"} })
		}, "unresolved: r.io/caasp/velum: 4.0.0-rev1 refused by deny: matches * | "},
		"a denied release": {func(w *world) { w.answers(revision); w.deny(revision) }, " | "},
		"a tag moved to an older build": {func(w *world) {
			w.rec.Releases.Set(release.Key(velum, first.Digest), built(first, -1))
			w.answers(built(rel(velum, "4.0.0-rev1-build1.0"), -2))
		}, " | "},
		"the same image in another manifest": {func(w *world) { same := rebuild; same.Config = first.Config; w.answers(same) }, " | "},
		"a newer one was not read twice": {func(w *world) {
			w.answers(revision)
			for q, o := range w.offers {
				o.Newer[0].Confirmed = false
				w.offers[q] = o
			}
		}, " | "},
		"a container that an edit adds": {func(w *world) {
			w.disk("velum.yaml", text("velum", "Always", "velum="+velum+":4.0.0-rev1", "mine="+velum+":4.0.0-rev1"))
		}, "convert; staged | keep velum.yaml"},
		"its template adds a comment": {func(w *world) {
			w.templateText("velum.yaml", append([]byte("# new\n"), text("velum", "", "velum="+velum+":4.0.0-rev1")...))
		}, " | write velum.yaml"},
		"on a busy node": {func(w *world) {
			w.inv.Busy = "update_in_progress"
			w.templateText("velum.yaml", append([]byte("# new\n"), text("velum", "", "velum="+velum+":4.0.0-rev1")...))
		}, "busy: update_in_progress | "},
		"what is not wanted any more is dropped": {func(w *world) { put(&w.inv.Waiting, node.PodFile{Name: "velum.yaml", Data: []byte("x")}) }, " | drop velum.yaml"},
		"and so is that of an unknown pod":       {func(w *world) { put(&w.inv.Waiting, node.PodFile{Name: "old.yaml", Data: []byte("x")}) }, " | drop old.yaml"},
		"a pod of two images, one of which the source has not": {func(w *world) {
			w.has("velum.yaml", "velum="+velum+":4.0.0-rev1", "db="+mariadb+":10.0-rev1")
			w.answers(rebuild)
		}, "unresolved: r.io/caasp/mariadb:10.0-rev1: <nil> | "},
		"the configuration's pull policy": {func(w *world) { w.policy.PullPolicy = manifests.PullIfNotPresent }, "convert; staged | keep velum.yaml"},
		"a file of garbage":               {func(w *world) { w.disk("velum.yaml", []byte("\t: x")) }, "pod manifest: line 1: found character that cannot start any token | "},
		"a file that must not be read": {func(w *world) {
			w.inv.PodManifests[0] = node.PodFile{Name: "velum.yaml", Err: errors.New("is a symlink")}
		}, "is a symlink | "},
		"a template of garbage": {func(w *world) { w.templateText("velum.yaml", []byte("kind: List\n")) }, "template: line 1: kind List: kubelet runs one Pod per file, not a list | "},
		"a stray placeholder": {func(w *world) {
			w.templateText("velum.yaml", append(text("velum", "", "velum="+velum+":__TAG__"), "    args: ['--image=r.io/etcd:__TAG__']\n"...))
		}, "render: no tag is known for __TAG__: line 9: spec.containers[0].args[0]: r.io/etcd:__TAG__ | "},
		"a reference that is none": {func(w *world) {
			w.template("velum.yaml", "velum=0123456789012345678901234567890123456789012345678901234567890123:1")
		}, "line 8: reference \"0123456789012345678901234567890123456789012345678901234567890123\": invalid repository name (0123456789012345678901234567890123456789012345678901234567890123), cannot specify 64-byte hexadecimal strings | "},
		"two files of one pod": {func(w *world) {
			w.disk("two.yaml", text("velum", "", "velum="+velum+":4.0.0-rev1"))
			w.answers(rebuild)
		}, "duplicate: two.yaml and velum.yaml define the same pod default/velum: kubelet runs the one that it read last | "},
		"a hold, and nothing is offered": {func(w *world) { w.holds("*") }, " | "},
		"a hold on what is to be staged": {func(w *world) { w.holds("*"); w.answers(rebuild) }, "rebuild; hold: everything: wait | stage 4.0.0-rev1-build1.2"},
		"a hold on two containers of one repository": {func(w *world) {
			w.has("velum.yaml", "velum="+velum+":4.0.0-rev1", "b="+velum+":4.0.0-rev1", "pinned="+mariadb+"@"+firstDB.Digest.String())
			w.runs("velum.yaml", "b", first)
			w.holds(velum)
			w.answers(rebuild)
		}, "rebuild; hold: r.io/caasp/velum: wait | stage 4.0.0-rev1-build1.2; keep velum.yaml"},
		"a foreign file": {func(w *world) {
			w.disk("velum.yaml", text("velum", "", "velum="+velum+":4.0.0-rev1"))
			w.template("velum.yaml")
			w.template("o.yaml", "o="+velum+":4.0.0-rev1")
			w.rec.Wrote = nil
		}, "unmanaged: velum.yaml has no template and is not listed under manage | write o.yaml"},
		"a foreign file and a rebuild": {func(w *world) {
			w.template("velum.yaml")
			w.answers(rebuild)
			w.rec.Wrote = nil
		}, "rebuild; unmanaged: velum.yaml has no template and is not listed under manage | stage 4.0.0-rev1-build1.2"},
		"a container before it": {func(w *world) {
			w.template("velum.yaml", "db="+mariadb+":10.0-rev1", "velum="+velum+":4.0.0-rev1")
			w.offer("10.0-rev1", firstDB)
			w.stage(firstDB)
		}, "convert; staged | keep velum.yaml"},
		"no space for it": {func(w *world) {
			w.answers(rebuild)
			w.inv.BlockedBySpace = map[string]policy.SpaceNeeded{release.Key(velum, rebuild.Digest): {}}
			w.inv.Filesystem, w.policy.Reserve = policy.Filesystem{Size: 2e9, Free: 1e6}, policy.Reserve{Bytes: 1e9}
		}, "rebuild; disk: r.io/caasp/velum:4.0.0-rev1-build1.2: needs 0 bytes to pull and 0 bytes to unpack with 1.0 GB of 2.0 GB kept free, but only 1.0 MB are free on  | "},
		"no space, and kubelet has pulled it": {func(w *world) {
			w.answers(rebuild)
			w.inv.BlockedBySpace = map[string]policy.SpaceNeeded{release.Key(velum, rebuild.Digest): {}}
			w.inv.Filesystem, w.policy.Reserve = policy.Filesystem{Size: 2e9, Free: 1e6}, policy.Reserve{Bytes: 1e9}
			w.held(velum+":4.0.0-rev1", rebuild.Digest)
		}, "rebuild | stage 4.0.0-rev1-build1.2"},
		"signatures are required": {func(w *world) {
			w.answers(rebuild)
			w.stage(rebuild)
			w.rule(func(r *policy.Rule) { r.Signatures = policy.SignaturesRequire })
		}, "rebuild | stage 4.0.0-rev1-build1.2"},
	}, (*world).says)
}

// The current rules decide, not those at the time of the answer.
func TestRulesOfNow(t *testing.T) {
	t.Parallel()
	short := func(w *world, next release.Release) { // the pod manifest has not been converted yet
		w.has("velum.yaml", "velum="+velum+":4.0.0")
		w.offer("4.0.0", next)
	}
	no := func(change func(*policy.Rule)) func(*world) {
		return func(w *world) { w.answers(revision); w.rule(change) }
	}
	two := func(w *world, beside, deny string) {
		w.has("velum.yaml", "velum="+velum+":4.0.0", "db="+beside)
		w.offer("4.0.0", first)
		w.runs("velum.yaml", "db", firstDB)
		w.offer("10.0-rev1", firstDB)
		w.rule(func(r *policy.Rule) { r.Deny = []string{deny} })
	}
	each(t, running, map[string]row{
		"updates: none":                                    {no(func(r *policy.Rule) { r.Updates = tags.Same }), " |  | 4.0.0-rev2 refused by updates: a revision change is larger than updates: none"},
		"updates: rebuild":                                 {no(func(r *policy.Rule) { r.Updates = tags.Rebuild }), " |  | 4.0.0-rev2 refused by updates: a revision change is larger than updates: rebuild"},
		"a rebuild, and updates: none":                     {func(w *world) { w.answers(rebuild); w.rule(func(r *policy.Rule) { r.Updates = tags.Same }) }, " |  | 4.0.0-rev1-build1.2 refused by updates: a rebuild change is larger than updates: none"},
		"a short tag that was moved":                       {func(w *world) { short(w, revision) }, "revision | stage 4.0.0-rev2-build2.1; keep velum.yaml"},
		"a short tag that was moved, and updates: rebuild": {func(w *world) { short(w, revision); w.rule(func(r *policy.Rule) { r.Updates = tags.Rebuild }) }, " |  | 4.0.0-rev2-build2.1 refused by updates: a revision change is larger than updates: rebuild"},
		"a conversion":                                     {func(w *world) { short(w, first) }, "convert; staged | keep velum.yaml"},
		"an image of another application": {func(w *world) {
			was, is := first, rebuild
			was.Origin, is.Origin = "caasp/velum", "caasp/grafana"
			w.rec.Releases.Set(release.Key(velum, first.Digest), was)
			w.answers(is)
		}, " |  | 4.0.0-rev1-build1.2 refused by origin: its label is caasp/grafana, the label of 4.0.0-rev1-build1.1 is caasp/velum"},
		"a conversion, and deny": {func(w *world) { short(w, first); w.rule(func(r *policy.Rule) { r.Deny = []string{"4.0.0-rev1*"} }) }, " |  | 4.0.0-rev1 refused by deny: matches 4.0.0-rev1*"},
		"a conversion, and max":  {func(w *world) { short(w, first); w.rule(func(r *policy.Rule) { r.Max, _ = tags.Parse("3.9") }) }, " |  | 4.0.0-rev1 refused by max: above 3.9"},
		"another pull policy, and deny": {func(w *world) {
			w.policy.PullPolicy = manifests.PullIfNotPresent
			w.rule(func(r *policy.Rule) { r.Deny = []string{"4.0.0-rev1*"} })
		}, " |  | 4.0.0-rev1 refused by deny: matches 4.0.0-rev1*"},
		"a conversion, and the image beside it is denied": {func(w *world) { two(w, mariadb+":10.0-rev1", "10.0-rev1") }, " | "},
		"a conversion beside what follows nothing":        {func(w *world) { two(w, mariadb+"@"+firstDB.Digest.String(), "10.0-rev1") }, "convert; staged | keep velum.yaml"},
	}, func(w *world) string {
		p := w.decide()
		out := of(p, "velum.yaml") + " | " + steps(p)
		for _, no := range p.Pods[0].Images[0].Offer.Refused {
			out += " | " + no.String()
		}
		return out
	})
}

// A new pod is written once its images are on the node.
func TestNewPod(t *testing.T) {
	t.Parallel()
	pod := func() *world {
		w := empty()
		w.template("velum.yaml", "velum="+velum+":4.0.0-rev1")
		w.offer("4.0.0-rev1", first)
		return w
	}
	each(t, pod, map[string]row{
		"not there yet":                   {func(*world) {}, " | stage 4.0.0-rev1-build1.1; write velum.yaml"},
		"staged":                          {func(w *world) { w.stage(first) }, " | write velum.yaml"},
		"on a busy node":                  {func(w *world) { w.inv.Busy = "busy" }, "busy: busy | stage 4.0.0-rev1-build1.1"},
		"the newest":                      {func(w *world) { w.brings("__TAG__"); w.offer("", rel(velum, "4.0.0-rev2-build2.1")) }, " | stage 4.0.0-rev2-build2.1; write velum.yaml"},
		"one not allowed":                 {func(w *world) { w.rule(func(r *policy.Rule) { r.Deny = []string{"4.0.0*"} }) }, "unresolved: r.io/caasp/velum:4.0.0-rev1: 4.0.0-rev1 refused by deny: matches 4.0.0* | "},
		"a person has it in another file": {func(w *world) { w.disk("mine.yaml", text("velum", "", "velum="+velum+":4.0.0-rev1")) }, "duplicate: mine.yaml and velum.yaml define the same pod default/velum: kubelet runs the one that it read last | stage 4.0.0-rev1-build1.1"},
		"a denied one":                    {func(w *world) { w.deny(first) }, "unresolved: r.io/caasp/velum:4.0.0-rev1: 4.0.0-rev1-build1.1 refused by failed: velum.yaml:  | "},
		"the newest is not allowed": {func(w *world) {
			w.offer("4.0.0-rev1", first, revision)
			w.rule(func(r *policy.Rule) { r.Deny = []string{"4.0.0-rev2"} })
		}, " | stage 4.0.0-rev1-build1.1; write velum.yaml"},
		"a rewrite": {func(w *world) {
			w.template("velum.yaml", "velum=sles12/velum:__TAG__")
			w.policy.Rewrites = []manifests.Rewrite{{From: "sles12", To: "r.io/caasp"}}
			w.policy.Values = map[string]string{"sles12/velum": "4.0.0-rev1"}
		}, " | stage 4.0.0-rev1-build1.1; write velum.yaml"},
		"no delay": {func(w *world) { w.delay("4.0.0-rev1", time.Hour) }, " | stage 4.0.0-rev1-build1.1; write velum.yaml"},
		"no space": {func(w *world) {
			w.inv.BlockedBySpace = map[string]policy.SpaceNeeded{release.Key(velum, first.Digest): {}}
			w.inv.Filesystem, w.policy.Reserve = policy.Filesystem{Size: 2e9, Free: 1e6}, policy.Reserve{Bytes: 1e9}
		}, "disk: r.io/caasp/velum:4.0.0-rev1-build1.1: needs 0 bytes to pull and 0 bytes to unpack with 1.0 GB of 2.0 GB kept free, but only 1.0 MB are free on  | "},
	}, (*world).says)
}

// delay makes this node wait before it pulls the offer for a tag.
func (w *world) delay(tag string, by time.Duration) {
	w.policy.StageDelay = time.Hour
	for q, o := range w.offers {
		if q.Tag == tag {
			o.StageFrom = now.Add(by)
			w.offers[q] = o
		}
	}
}

// The pulls of a rebuild are spread over the nodes.
func TestSpreadOfPulls(t *testing.T) {
	t.Parallel()
	pod := func() *world {
		w := running()
		w.answers(rebuild)
		w.delay("4.0.0-rev1", time.Hour)
		return w
	}
	each(t, pod, map[string]row{
		"later":                 {func(*world) {}, "rebuild | "},
		"now":                   {func(w *world) { w.now = now.Add(time.Hour) }, "rebuild | stage 4.0.0-rev1-build1.2"},
		"a wrong clock":         {func(w *world) { w.delay("4.0.0-rev1", 2*time.Hour) }, "rebuild | stage 4.0.0-rev1-build1.2"},
		"it is there":           {func(w *world) { w.stage(rebuild) }, "rebuild; staged | "},
		"kubelet has pulled it": {func(w *world) { w.held(velum+":4.0.0-rev1", rebuild.Digest) }, "rebuild | stage 4.0.0-rev1-build1.2"},
		"a new pod needs it":    {func(w *world) { w.template("two.yaml", "two="+velum+":4.0.0-rev1") }, "rebuild | stage 4.0.0-rev1-build1.2; write two.yaml"},
		"another question needs it": {func(w *world) {
			w.policy.Images = []release.Reference{{Repository: velum, Tag: "4.0.0"}}
			w.offers[release.Question{Repository: velum, Tag: "4.0.0"}] = source.Offer{Answer: record.Answer{Follow: rebuild, Newest: rebuild}}
		}, "rebuild | stage 4.0.0-rev1-build1.2"},
		"a rendered file does not wait for what a new pod needs": {func(w *world) {
			w.templateText("velum.yaml", append(text("velum", "", "velum="+velum+":4.0.0-rev1"), "  hostNetwork: true\n"...))
			w.template("two.yaml", "two="+velum+":4.0.0-rev1")
		}, "rebuild | stage 4.0.0-rev1-build1.2; write two.yaml; keep velum.yaml"},
		"nor for what kubelet has pulled": {func(w *world) {
			w.templateText("velum.yaml", append(text("velum", "", "velum="+velum+":4.0.0-rev1"), "  hostNetwork: true\n"...))
			w.held(velum+":4.0.0-rev1", rebuild.Digest)
		}, "rebuild | stage 4.0.0-rev1-build1.2; keep velum.yaml"},
		"two questions, and the time of one has come": {func(w *world) {
			w.has("two.yaml", "two="+velum+":4.0.0-rev1-build1.1")
			w.runs("two.yaml", "two", first)
			w.offer("4.0.0-rev1-build1.1", rebuild)
			w.now = now.Add(time.Hour)
			w.delay("4.0.0-rev1-build1.1", 90*time.Minute)
			w.policy.StageDelay = time.Hour
		}, "rebuild | stage 4.0.0-rev1-build1.2; keep two.yaml"},
		"a rendered file waits, too": {func(w *world) {
			w.templateText("velum.yaml", append(text("velum", "", "velum="+velum+":4.0.0-rev1"), "  hostNetwork: true\n"...))
		}, "rebuild | "},
	}, (*world).says)
}

// The status says when the pull begins, and which tags may be newer.
func TestNotes(t *testing.T) {
	t.Parallel()
	w := running()
	w.answers(rebuild)
	w.delay("4.0.0-rev1", time.Hour)
	i := w.decide().Pods[0].Images[0]
	assert.Equal(t, []string{"staging begins at 2026-05-01T13:00:00Z"}, i.Offer.Notes)
	assert.Equal(t, now.Add(time.Hour), i.StageFrom)
	w = running()
	w.rec.Releases.Set(release.Key(velum, first.Digest), built(first, -1))
	w.answers(built(revision, -2))
	assert.Equal(t, []string{
		"4.0.0-rev2-build2.1 is newer by name than 4.0.0-rev1-build1.1, but was created earlier (2026-05-01T10:00:00Z, 2026-05-01T11:00:00Z)",
	}, w.decide().Pods[0].Images[0].Offer.Notes)
	w = running()
	w.answers(revision)
	for q, o := range w.offers {
		o.Newer[0].Confirmed = false
		w.offers[q] = o
	}
	assert.Equal(t, []string{"4.0.0-rev2 may be newer; the next check asks for it"}, w.decide().Pods[0].Images[0].Offer.Notes)
}

// A configured pattern that takes no other tag of the list is named, unless the list is of other rules, or not known.
func TestPatternThatTakesOneTag(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		list record.TagList
		old  bool
		want *status.RebuildsOnly
	}{
		"one of four": {
			record.TagList{Tags: []string{"4.0.0-rev1"}, Unrecognized: 3},
			false,
			&status.RebuildsOnly{Tag: "4.0.0-rev1", Reason: "tags.pattern matches none of the other tags in the list (3)"},
		},
		"two":               {record.TagList{Tags: []string{"4.0.0-rev1", "4.0.0-rev2"}, Unrecognized: 3}, false, nil},
		"there is one":      {record.TagList{Tags: []string{"4.0.0-rev1"}}, false, nil},
		"of other rules":    {record.TagList{Tags: []string{"4.0.0-rev1"}, Unrecognized: 3}, true, nil},
		"no list":           {record.TagList{}, false, nil},
		"no list is served": {record.TagList{Error: "403", Unrecognized: 3}, false, nil},
	} {
		w := running()
		pattern, err := tags.NewScheme(`^(?P<version>4\.0\.0)-rev(?P<rev>[0-9]+)$`, "", false)
		require.NoError(t, err)
		w.rule(func(r *policy.Rule) { r.Scheme = pattern })
		w.answers(first)
		w.rec.Lists.Set(velum, c.list)
		for q := range w.offers {
			answer := record.Answer{Rules: w.policy.RuleFor(velum).Fingerprint()}
			if c.old {
				answer.Rules = "of yesterday"
			}
			w.rec.Offers.Set(q.String(), answer)
		}
		assert.Equal(t, c.want, w.decide().Pods[0].Images[0].RebuildsOnly, name)
	}
}

// A reference without a tag follows latest. It is not rewritten, and so not restarted, to write the tag.
func TestReferenceWithoutATag(t *testing.T) {
	t.Parallel()
	const nginx = "r.io/library/nginx"
	first, next := rel(nginx, "latest"), rel(nginx, "latest")
	next.Digest, next.Config = digest.FromString("next"), digest.FromString("config of next")
	pinned := nginx + "@" + first.Digest.String()
	tagged := nginx + ":latest@" + first.Digest.String()
	for name, c := range map[string]struct {
		template, disk string // the reference
		offered        release.Release
		change, wanted string
	}{
		"current":                      {nginx, nginx, first, "", nginx},
		"rebuilt":                      {nginx, nginx, next, "rebuild", nginx},
		"an older agent wrote the tag": {nginx, nginx + ":latest", first, "", nginx + ":latest"},
		"the template has it":          {nginx + ":latest", nginx, first, "convert", nginx + ":latest"},
		"by digest":                    {pinned, pinned, first, "", pinned},
		"by digest, rebuilt":           {pinned, pinned, next, "", pinned},
		"by digest, with a tag":        {tagged, tagged, next, "", tagged},
	} {
		w := empty()
		w.template("web.yaml", "web="+c.template)
		pull := w.policy.PullPolicy
		if strings.Contains(c.disk, "@") {
			pull = "" // as rendered: beside a digest none is written
		}
		w.wrote("web.yaml", text("web", pull, "web="+c.disk))
		w.runs("web.yaml", "web", first)
		w.offer("latest", c.offered)
		p := w.decide().Pods[0]
		require.NoError(t, p.Err, name)
		assert.Equal(t, c.change, p.Change, name)
		if c.wanted != "" && p.Wanted != nil {
			assert.Contains(t, string(p.Wanted), "image: "+c.wanted+"\n", name)
		}
		assert.Equal(t, c.change == "convert", p.Waiting, name)
	}
	assert.Empty(t, policy.ChangeOf(release.Reference{Repository: nginx}, first, true, true, tags.Scheme{}))
}

// A container has ended, and kubelet does not say why it starts no other: what is known of its image is said beside how it
// ended.
func TestDownSaysWhatIsKnownOfTheImage(t *testing.T) {
	t.Parallel()
	away := record.SourceRecord{Failures: 2, Reason: "mirror m1:5000: connection refused"}
	for name, c := range map[string]struct {
		pull, want string
		set        func(w *world)
	}{
		"the registry does not answer": {manifests.PullAlways, "kubelet has to pull " + velum + ":4.0.0-rev1, and the registry did not answer the last question: mirror m1:5000: connection refused", func(w *world) {
			w.rec.Sources.Set(velum, away)
		}},
		"only its list": {manifests.PullAlways, "", func(w *world) {
			list := away
			list.List = true
			w.held(velum+":4.0.0-rev1", first.Digest)
			w.rec.Sources.Set(velum, list)
		}},
		"it is on the node": {manifests.PullIfNotPresent, "", func(w *world) {
			w.held(velum+":4.0.0-rev1", first.Digest)
			w.rec.Sources.Set(velum, away)
		}},
		"it is not on the node": {manifests.PullIfNotPresent, "no image on the node is named " + velum + ":4.0.0-rev1", func(*world) {}},
		"kubelet says why": {manifests.PullAlways, "no such host", func(w *world) {
			w.rec.Sources.Set(velum, away)
			w.inv.Unstarted = []node.Waiting{{Namespace: "default", Pod: "velum-node1", Container: "velum", Reason: "ErrImagePull", Message: "no such host"}}
		}},
	} {
		w := running()
		w.policy.PullPolicy = c.pull
		w.has("velum.yaml", "velum="+velum+":4.0.0-rev1")
		w.stops("velum.yaml")
		c.set(w)
		down := w.decide().Pods[0].Images[0].Down
		require.NotNil(t, down, name)
		assert.Equal(t, c.want, down.Message, name)
		assert.EqualValues(t, 1, down.ExitCode, name)
	}
}

// Newer tags that the configuration refuses come with the setting that would allow them.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	major := rel(velum, "5.0.0-rev1-build1.1")
	tag := func(r release.Release, key string) status.NotAllowed {
		return status.NotAllowed{Image: velum, Tag: r.Tag, Rule: policy.RuleUpdates, Key: "updates: " + key}
	}
	for updates, want := range map[tags.Change][]status.NotAllowed{
		tags.Same:  {tag(major, "major"), tag(patch, "patch")},
		tags.Patch: {tag(major, "major")},
		tags.Major: {},
	} {
		w := running()
		w.rule(func(r *policy.Rule) { r.Updates = updates })
		w.offer("4.0.0-rev1", first, major, patch)
		assert.Equal(t, want, w.decide().NotAllowed(), updates)
	}
	w := running()
	w.rule(func(r *policy.Rule) { r.Deny = []string{"*"} })
	assert.Empty(t, w.decide().NotAllowed(), "what runs is not newer than itself")
}

// A kubeadm pod is offered only patches; its other images, and pods with a template, follow the rule alone.
func TestControlPlaneOfKubeadm(t *testing.T) {
	t.Parallel()
	const scheduler = "registry.k8s.io/kube-scheduler"
	labels := "  namespace: kube-system\n  labels: {component: kube-scheduler, tier: control-plane}\nspec:"
	pod := text("kube-scheduler", "", "kube-scheduler="+scheduler+":v1.34.0", "beside="+scheduler+"-proxy:v1.34.0")
	pod = []byte(strings.Replace(string(pod), "spec:", labels, 1))
	for name, c := range map[string]struct {
		template bool
		want     [2]string
	}{"without a template": {false, [2]string{"", "minor"}}, "with one": {true, [2]string{"minor", "minor"}}} {
		w := empty()
		w.rule(func(r *policy.Rule) { r.Updates = tags.Minor })
		w.policy.Manage = map[string]bool{"kube-scheduler.yaml": true}
		w.disk("kube-scheduler.yaml", pod)
		if c.template {
			w.templateText("kube-scheduler.yaml", pod)
		}
		for n, repository := range []string{scheduler, scheduler + "-proxy"} {
			is, next := rel(repository, "v1.34.0"), rel(repository, "v1.35.0")
			w.container("kube-scheduler.yaml", []string{"kube-scheduler", "beside"}[n], is).Namespace = "kube-system"
			w.stage(is)
			q := release.Question{Repository: repository, Tag: "v1.34.0", Convert: true, Kubeadm: n == 0 && !c.template}
			w.offers[q] = source.Offer{Question: q, Answer: record.Answer{Follow: is, Newest: is, Newer: []record.Candidate{{Release: next, Confirmed: true}}}}
		}
		images := w.decide().Pods[0].Images
		assert.Equal(t, c.want, [2]string{images[0].Change, images[1].Change}, name)
	}
}

// The edits of an offer are changes of images and pull policies.
func TestEdits(t *testing.T) {
	t.Parallel()
	w := offering(revision)
	w.policy.PullPolicy = manifests.PullIfNotPresent
	assert.Equal(t, []status.Edit{
		{Container: "velum", Field: status.EditImage, From: first.Long, To: revision.Long},
		{Container: "velum", Field: status.EditPullPolicy, From: "Always", To: "IfNotPresent"},
	}, w.decide().Pods[0].Edits)
	w = running()
	w.policy.Manage, w.policy.ManagedPullPolicy = map[string]bool{"velum.yaml": true}, manifests.PullAlways
	w.template("velum.yaml")
	w.disk("velum.yaml", text("velum", "IfNotPresent", "velum="+velum+":4.0.0-rev1"))
	pod := w.decide().Pods[0]
	assert.Equal(t, []status.Edit{{Container: "velum", Field: status.EditPullPolicy, From: "IfNotPresent", To: "Always"}}, pod.Edits)
	assert.Equal(t, policy.ChangeConvert, pod.Change)
	w.policy.ManagedPullPolicy = ""
	assert.Empty(t, w.decide().Pods[0].Change, "without that key it keeps its own")
	w = running()
	w.answers(release.Release{Repository: velum, Tag: "4.0.0-rev1", Digest: rebuild.Digest})
	w.rec.Releases = nil
	assert.Equal(t, []status.Edit{{
		Container: "velum", Field: status.EditImage,
		From: "4.0.0-rev1 (" + first.Digest.Encoded()[:12] + ")", To: "4.0.0-rev1 (" + rebuild.Digest.Encoded()[:12] + ")",
	}}, w.decide().Pods[0].Edits, "names of the same version")
}

// A pod manifest without a template: removed, offered for removal, or left.
func TestOrphanedPodManifest(t *testing.T) {
	t.Parallel()
	pod := func() *world {
		w := running()
		w.template("velum.yaml")
		w.has("other.yaml", "db="+mariadb+":10.0-rev1")
		w.runs("other.yaml", "db", firstDB)
		w.offer("10.0-rev1", firstDB)
		return w
	}
	each(t, pod, map[string]row{
		"it runs: its removal is an offer": {func(*world) {}, "remove; staged | "},
		"approved":                         {(*world).approve, "remove; staged | apply velum.yaml (remove)"},
		"mode auto removes nothing":        {func(w *world) { w.policy.Auto = true }, "remove; staged | "},
		"it crashes: that is no reason":    {func(w *world) { w.stops("velum.yaml") }, "remove; staged | "},
		"its pod is not there":             {func(w *world) { w.inv.Containers = nil }, "remove; staged | remove velum.yaml"},
		"on a busy node":                   {func(w *world) { w.inv.Containers, w.inv.Busy = nil, "busy" }, "remove; staged; busy: busy | "},
		"it was edited":                    {func(w *world) { w.edit("velum.yaml", "# mine\n") }, "edited: its template is gone, but the file was edited since the agent wrote it | "},
		"without any template":             {func(w *world) { w.template("other.yaml") }, "unmanaged: velum.yaml has no template and is not listed under manage | "},
		"it is listed":                     {func(w *world) { w.policy.Manage = map[string]bool{"velum.yaml": true} }, " | "},
		"its rendered file goes":           {func(w *world) { put(&w.inv.Waiting, node.PodFile{Name: "velum.yaml", Data: []byte("x")}) }, "remove; staged | drop velum.yaml"},
		"its rendered file goes, though edited": {func(w *world) {
			put(&w.inv.Waiting, node.PodFile{Name: "velum.yaml", Data: []byte("x")})
			w.edit("velum.yaml", "# mine\n")
		}, "edited: its template is gone, but the file was edited since the agent wrote it | drop velum.yaml"},
		"it was rolled back": {func(w *world) { w.rolledBack(rebuild) }, "remove; staged | "},
	}, (*world).says)
}

// An offer is applied after an approval or by mode auto, if no hold prevents it.
func TestAppliedOffers(t *testing.T) {
	t.Parallel()
	approved := func() *world { w := offering(rebuild); w.approve(); return w }
	each(t, approved, map[string]row{
		"nothing":           {func(*world) {}, "rebuild; staged | apply velum.yaml (rebuild)"},
		"a hold on all":     {func(w *world) { w.holds("*") }, "rebuild; staged; hold: everything: wait | "},
		"a hold on it":      {func(w *world) { w.holds(velum) }, "rebuild; staged; hold: r.io/caasp/velum: wait | "},
		"a hold on another": {func(w *world) { w.holds(mariadb) }, "rebuild; staged | apply velum.yaml (rebuild)"},
		"a hold that ended": {func(w *world) { w.rec.Holds.Set(velum, record.PersonHold{Until: now}) }, "rebuild; staged | apply velum.yaml (rebuild)"},
		"a hold until then": {func(w *world) { w.rec.Holds.Set(velum, record.PersonHold{Until: now.Add(time.Hour)}) }, "rebuild; staged; hold: r.io/caasp/velum, until 2026-05-01T13:00:00Z | "},
		"the configuration": {func(w *world) { w.rule(func(r *policy.Rule) { r.Hold = "migration" }) }, "rebuild; staged; hold: r.io/caasp/velum: migration (configuration) | "},
		"the configuration, until then": {func(w *world) {
			w.rule(func(r *policy.Rule) { r.Hold, r.HoldUntil = "migration", now.Add(time.Hour) })
		}, "rebuild; staged; hold: r.io/caasp/velum: migration (configuration), until 2026-05-01T13:00:00Z | "},
		"the configuration, once": {func(w *world) { w.rule(func(r *policy.Rule) { r.Hold, r.HoldUntil = "migration", now }) }, "rebuild; staged | apply velum.yaml (rebuild)"},
		"another operation":       {func(w *world) { w.inv.Busy = "update_in_progress" }, "rebuild; staged; busy: update_in_progress | "},
		"the node":                {func(w *world) { w.inv.RestartHolds = []status.Hold{{Name: "reboot", Reason: "at 03:00"}} }, "rebuild; staged; reboot: at 03:00 | "},
		"a freeze":                {func(w *world) { w.policy.Freeze = now.Add(time.Hour) }, "rebuild; staged; freeze: no updates before 2026-05-01T13:00:00Z | "},
		"a freeze that ended":     {func(w *world) { w.policy.Freeze = now }, "rebuild; staged | apply velum.yaml (rebuild)"},
		"the window":              {func(w *world) { w.policy.Window = night }, "rebuild; staged | apply velum.yaml (rebuild) || rebuild; staged; waits: window: the next maintenance window opens at 2026-05-02T02:00:00Z | "},
		"an earlier failure": {func(w *world) {
			w.rec.Failed.Set("velum.yaml", record.Failure{Offer: w.decide().Pods[0].ID, Reason: "did not come up"})
		}, "rebuild; staged | apply velum.yaml (rebuild) || rebuild; staged; waits: failed: did not come up | "},
		"a failure of another offer": {func(w *world) { w.rec.Failed.Set("velum.yaml", record.Failure{Offer: "x", Reason: "did not come up"}) }, "rebuild; staged | apply velum.yaml (rebuild)"},
		"another offer":              {func(w *world) { w.answers(revision); w.stage(revision) }, "revision; staged | keep velum.yaml; prune r.io/caasp/velum:4.0.0-rev1-build1.2 || revision; staged | keep velum.yaml; prune r.io/caasp/velum:4.0.0-rev1-build1.2; apply velum.yaml (revision)"},
		"another digest":             {func(w *world) { w.answers(rel(velum, "4.0.0-rev1-build1.3")) }, "rebuild | stage 4.0.0-rev1-build1.3; prune r.io/caasp/velum:4.0.0-rev1-build1.2"},
		"a day":                      {func(w *world) { w.now = now.Add(record.ApprovalAge + time.Second) }, "rebuild; staged |  || rebuild; staged | apply velum.yaml (rebuild)"},
		"its image is not there":     {func(w *world) { w.inv.Held = w.inv.Held[:2] }, "rebuild | stage 4.0.0-rev1-build1.2; apply velum.yaml (rebuild) || rebuild | stage 4.0.0-rev1-build1.2"},
		"a rebuild that is older by its time": {func(w *world) {
			w.rec.Releases.Set(release.Key(velum, first.Digest), built(first, -1))
			w.answers(built(rebuild, -2))
		}, "rebuild; staged | apply velum.yaml (rebuild) || rebuild; staged; waits: contradiction: 4.0.0-rev1-build1.2 is newer by name than 4.0.0-rev1-build1.1, but was created earlier (2026-05-01T10:00:00Z, 2026-05-01T11:00:00Z) | "},
		"a time that contradicts, which the rule allows": {func(w *world) {
			w.rec.Releases.Set(release.Key(velum, first.Digest), built(first, -1))
			w.answers(built(rebuild, -2))
			w.rule(func(r *policy.Rule) { r.Older = true })
		}, "rebuild; staged | apply velum.yaml (rebuild)"},
	}, func(w *world) string {
		person := w.says()
		w.policy.Auto, w.rec.Approved = true, nil
		if auto := w.says(); auto != person {
			return person + " || " + auto
		}
		return person
	})
	w := offering(rebuild)
	w.rec.Holds.Set(velum, record.PersonHold{Reason: "wait"})
	w.rule(func(r *policy.Rule) { r.Hold, r.HoldUntil = "migration", now.Add(time.Hour) })
	assert.Equal(t, []status.Hold{
		{Name: status.HoldRequested, Reason: velum + ": wait", Image: velum, By: status.ByPerson, Note: "wait"},
		{
			Name: status.HoldRequested, Reason: velum + ": migration (configuration), until 2026-05-01T13:00:00Z",
			Image: velum, Note: "migration", By: status.ByConfiguration, Until: now.Add(time.Hour),
		},
	}, w.decide().Pods[0].Holds)
}

// A restart of the whole pod must not start a refused release.
func TestRestartThatWouldStartARefusedRelease(t *testing.T) {
	t.Parallel()
	two := func(pull string) func() *world {
		return func() *world {
			w := empty()
			w.policy.PullPolicy = pull
			w.has("velum.yaml", "velum="+velum+":4.0.0-rev1", "db="+mariadb+":10.0-rev1")
			w.runs("velum.yaml", "velum", built(first, -1))
			w.runs("velum.yaml", "db", firstDB)
			w.offer("4.0.0-rev1", built(rel(velum, "4.0.0-rev1-build1.0"), -2))
			w.offer("10.0-rev1", firstDB, nextDB)
			w.stage(nextDB)
			return w
		}
	}
	each(t, two(manifests.PullAlways), map[string]row{
		"under Always":           {func(*world) {}, "revision; staged; refused: r.io/caasp/velum:4.0.0-rev1: a restart would start 4.0.0-rev1-build1.0 refused by older: 4.0.0-rev1 moved to an older build: the running one is newer | keep velum.yaml"},
		"the tag is right again": {func(w *world) { w.offer("4.0.0-rev1", first) }, "revision; staged | keep velum.yaml"},
		"the local registry answers with what runs": {func(w *world) {
			w.inv.Gated = map[release.Reference]digest.Digest{{Repository: velum, Tag: "4.0.0-rev1"}: first.Digest}
		}, "revision; staged | keep velum.yaml"},
		"only the other container is stopped": {func(w *world) { w.offer("10.0-rev1", rel(mariadb, "10.0-rev1-build1.2")) }, "rebuild | stage 10.0-rev1-build1.2; prune r.io/caasp/mariadb:10.0-rev2-build2.1"},
	}, (*world).says)
	each(t, two(manifests.PullIfNotPresent), map[string]row{
		"the node has it by that name":          {func(w *world) { w.held(velum+":4.0.0-rev1", first.Digest) }, "revision; staged | keep velum.yaml"},
		"the node has it not by that name":      {func(*world) {}, "revision; staged; refused: r.io/caasp/velum:4.0.0-rev1: a restart would start 4.0.0-rev1-build1.0 refused by older: 4.0.0-rev1 moved to an older build: the running one is newer | keep velum.yaml"},
		"the node has another one by that name": {func(w *world) { w.held(velum+":4.0.0-rev1", rebuild.Digest) }, "revision; staged; refused: r.io/caasp/velum:4.0.0-rev1: a restart would start 4.0.0-rev1-build1.0 refused by older: 4.0.0-rev1 moved to an older build: the running one is newer | keep velum.yaml"},
	}, (*world).says)
}

// Images that no pod manifest names are staged, and their old releases removed.
func TestImagesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	q := release.Question{Repository: velum, Tag: "4.0.0"}
	tracked := func() *world {
		w := empty()
		w.policy.Images = []release.Reference{{Repository: velum, Tag: "4.0.0"}}
		w.offers[q] = source.Offer{Question: q, Answer: record.Answer{Follow: first, Newest: first, Newer: []record.Candidate{{Release: revision, Confirmed: true}}}}
		return w
	}
	each(t, tracked, map[string]row{
		"the newest":                   {func(*world) {}, "stage 4.0.0-rev2-build2.1 | sha256:91dd1b13ec2995192235976a6cf2f1e508d2567ce31f6ea3ecf87e6ffd269d1d"},
		"it is there":                  {func(w *world) { w.stage(revision) }, " | same"},
		"the rule refuses it":          {func(w *world) { w.rule(func(r *policy.Rule) { r.Deny = []string{"4.0.0-rev2"} }) }, "stage 4.0.0-rev1-build1.1 | sha256:86d8e9962a489a1ef747ca3a93bec088bc2c2e4efcfbc9a416618d1971026db5"},
		"the rule refuses all":         {func(w *world) { w.rule(func(r *policy.Rule) { r.Deny = []string{"4.0.0*"} }) }, " | same: 4.0.0-rev1 refused by deny: matches 4.0.0*"},
		"an old one until it is there": {func(w *world) { w.stage(first) }, "stage 4.0.0-rev2-build2.1 | 4.0.0-rev1-build1.1, sha256:91dd1b13ec2995192235976a6cf2f1e508d2567ce31f6ea3ecf87e6ffd269d1d"},
		"an old one once it is there":  {func(w *world) { w.stage(first); w.stage(revision) }, "prune r.io/caasp/velum:4.0.0-rev1-build1.1 | 4.0.0-rev2-build2.1"},
		"an old one while there is no space": {func(w *world) {
			w.stage(first)
			w.inv.BlockedBySpace = map[string]policy.SpaceNeeded{release.Key(velum, revision.Digest): {}}
			w.inv.Filesystem, w.policy.Reserve = policy.Filesystem{Size: 2e9, Free: 1e6}, policy.Reserve{Bytes: 1e9}
		}, " | same"},
		"later": {func(w *world) { w.delay("4.0.0", time.Hour) }, " | same"},
	}, func(w *world) string {
		p := w.decide()
		out := steps(p) + " | " + w.pins(p)
		if err := p.Tracked[0].Offer.Err; err != nil {
			out += ": " + err.Error()
		}
		return out
	})
}

// A client of the API server must not become newer than the server.
func TestSkew(t *testing.T) {
	t.Parallel()
	const server, client = "r.io/caasp/kube-apiserver", "r.io/caasp/kube-scheduler"
	is, next := "1.34.0-rev1-build1.1", "1.35.0-rev1-build1.1"
	cluster := func() *world {
		w := empty()
		w.rule(func(r *policy.Rule) { r.Updates = tags.Minor })
		w.policy.Manage, w.policy.Auto = map[string]bool{"kube-apiserver.yaml": true}, true
		for name, repository := range map[string]string{"kube-apiserver": server, "kube-scheduler": client, "velum": velum} {
			w.has(name+".yaml", "beside="+mariadb+":10.0-rev1", "main="+repository+":1.34.0-rev1")
			w.runs(name+".yaml", "main", rel(repository, is))
			w.runs(name+".yaml", "beside", firstDB)
			w.offer("1.34.0-rev1", rel(repository, is), rel(repository, next))
			w.stage(rel(repository, next))
		}
		w.offer("10.0-rev1", firstDB)
		return w
	}
	each(t, cluster, map[string]row{
		"a minor version": {func(*world) {}, "minor; staged; waits: control-plane: kube-scheduler must not be newer than kube-apiserver, which must be updated first | minor; staged; waits: control-plane: kube-apiserver is applied by hand, node by node | keep kube-apiserver.yaml; keep kube-scheduler.yaml; keep velum.yaml; apply velum.yaml (minor)"},
		"a patch": {func(w *world) {
			p := rel(client, "1.34.1-rev1-build1.1")
			w.offer("1.34.0-rev1", rel(client, is), p)
			w.stage(p)
		}, "patch; staged | minor; staged; waits: control-plane: kube-apiserver is applied by hand, node by node | keep kube-apiserver.yaml; keep kube-scheduler.yaml; keep velum.yaml; prune r.io/caasp/kube-scheduler:1.35.0-rev1-build1.1; apply kube-scheduler.yaml (patch); apply velum.yaml (minor)"},
		"approved":          {func(w *world) { w.approve() }, "minor; staged; waits: control-plane: kube-scheduler must not be newer than kube-apiserver, which must be updated first | minor; staged; waits: control-plane: kube-apiserver is applied by hand, node by node | keep kube-apiserver.yaml; keep kube-scheduler.yaml; keep velum.yaml; apply velum.yaml (minor); apply kube-apiserver.yaml (minor); apply kube-scheduler.yaml (minor)"},
		"without mode auto": {func(w *world) { w.policy.Auto = false }, "minor; staged | minor; staged | keep kube-apiserver.yaml; keep kube-scheduler.yaml; keep velum.yaml"},
		"the client is ahead": {func(w *world) {
			w.wrote("kube-scheduler.yaml", text("kube-scheduler", "Always", "beside="+mariadb+":10.0-rev1", "main="+client+":1.35.0-rev1"))
			w.runs("kube-scheduler.yaml", "main", rel(client, next))
			w.offer("1.35.0-rev1", rel(client, next))
		}, " | minor; staged; waits: control-plane: kube-apiserver is applied by hand, node by node | keep kube-apiserver.yaml; keep velum.yaml; prune r.io/caasp/kube-scheduler:1.34.0-rev1-build1.1; apply velum.yaml (minor)"},
		"the server is there": {func(w *world) {
			w.wrote("kube-apiserver.yaml", text("kube-apiserver", "Always", "beside="+mariadb+":10.0-rev1", "main="+server+":1.35.0-rev1"))
			w.runs("kube-apiserver.yaml", "main", rel(server, next))
			w.offer("1.35.0-rev1", rel(server, next))
		}, "minor; staged |  | keep kube-scheduler.yaml; keep velum.yaml; prune r.io/caasp/kube-apiserver:1.34.0-rev1-build1.1; apply kube-scheduler.yaml (minor); apply velum.yaml (minor)"},
	}, func(w *world) string {
		p := w.decide()
		return of(p, "kube-scheduler.yaml") + " | " + of(p, "kube-apiserver.yaml") + " | " + steps(p)
	})
}

// An image that was loaded from an archive has no digest known to CRI or a registry.
func TestRunningImageIsNotARebuildOfItself(t *testing.T) {
	t.Parallel()
	w := running()
	config, runs := digest.FromString("config"), digest.FromString("running")
	*w.container("velum.yaml", "velum", first) = node.Container{
		ID: "1", Sandbox: "s", Pod: "velum-node1", Namespace: "default", Name: "velum", Running: true, Image: config,
	}
	w.inv.Held, w.rec = []node.HeldImage{{Name: velum + ":4.0.0-rev1", Digest: runs, Config: config}}, record.Record{}
	w.answers(rebuild)
	w.rule(func(r *policy.Rule) { r.Deny = []string{rebuild.Digest.String()} })
	pod := w.decide().Pods[0]
	assert.Equal(t, runs, pod.Images[0].Target.Digest)
	assert.Equal(t, runs, pod.Images[0].Running.Digest)
	assert.Empty(t, pod.Change)
}

// Two containers of one tag run different digests: each is compared with its own.
func TestTwoContainersOnTwoDigestsOfOneTag(t *testing.T) {
	t.Parallel()
	w := empty()
	w.has("velum.yaml", "a="+velum+":4.0.0-rev1", "b="+velum+":4.0.0-rev1")
	w.runs("velum.yaml", "a", built(first, -3))
	w.runs("velum.yaml", "b", built(rebuild, -1))
	w.offer("4.0.0-rev1", built(rel(velum, "4.0.0-rev1-build1.1.5"), -2))
	images := w.decide().Pods[0].Images
	assert.Equal(t, "rebuild", images[0].Change)
	assert.Empty(t, images[1].Change, "it runs a later one")
	assert.Equal(t, policy.RuleOlder, images[1].Offer.Refused[0].Rule)
}

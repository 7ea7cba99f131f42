// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// flapTime is how long a restarted container must run before it counts as stable.
const flapTime = time.Minute

// pullProblem returns what may keep kubelet from pulling the image of a container that does not run, where kubelet does
// not say it; "" if nothing is known. It is what was seen of the image store, and the last answer of the registry.
func (f *facts) pullProblem(v follow.PodView, w follow.Want) string {
	if _, isPinned := v.PinnedAt(w.Image); isPinned {
		return ""
	}
	ref := w.OnDisk.Tagged()
	_, isThere := f.held.Named(ref.String())
	s := f.rec.Sources[ref.Repository]
	switch {
	case isThere && w.PullPolicy != manifests.PullAlways:
		return ""
	case s.Failures > 0 && !s.List:
		return fmt.Sprintf("kubelet has to pull %s, and the registry did not answer the last question: %s", ref, s.Reason)
	case !isThere:
		return fmt.Sprintf("no image on the node is named %s", ref)
	}
	return ""
}

// image plans one image of a pod.
func (f *facts) image(v follow.PodView, w follow.Want, containers []node.Container) ImagePlan {
	i := ImagePlan{Want: w, Offer: f.offers[w.Ask]}
	var c *node.Container
	if node.IsContainer(w.Image) {
		c = node.FindContainer(containers, w.Image.Container)
	}
	f.observed(v, w, c, &i)
	i.WasThere = f.wasThere(w.Ask)
	if w.Ask.Repository == "" || i.Offer.IsUnresolved() {
		return i
	}
	rule := f.policy.RuleForQuestion(w.Ask)
	good := f.rec.Good[record.GoodKey(v.File, w.Image.Container)]
	running := f.running(w, c, good)
	if at, ok := v.PinnedAt(w.Image); ok {
		running = at.Digest // the pinned digest must run
		i.note(v.Override.Note())
	}
	f.target(w, &i, rule, running)
	if i.Offer.IsUnresolved() {
		return i
	}
	var same bool
	i.Running.Digest, same = f.held.RunsTarget(c, i.Target)
	known := c != nil && c.Image != ""
	if !known && node.IsContainer(w.Image) && good.Running != "" && good.Repository == w.Ask.Repository {
		known, same = true, f.sameImage(good, i.Target)
	}
	i.Change = policy.ChangeOf(w.OnDisk, i.Target, known, same, rule.Scheme)
	if at, ok := v.PinnedAt(w.Image); ok && at.Digest == i.Target.Digest && v.Named[node.PlaceOf(w.Image)] {
		i.Change = "" // the pod manifest already has the digest
	}
	i.Bound = f.binds(v, i)
	if i.Change != "" && f.inv.Catalog.IsListed(i.Target.Repository) {
		i.Brings = f.inv.Catalog.Brings(i.Target.Repository, i.Running.Digest, i.Target.Digest, rule.Scheme)
	}
	i.Running.Tag = f.nameOf(w, i.Running.Digest)
	// A running image needs no signature: without one it would only block the other images of its pod.
	i.Staged = f.isStaged(i.Target) || same && f.held.Staged(i.Target)
	if i.Change != "" && f.isDelayed(i) {
		i.StageFrom = i.Offer.StageFrom.UTC()
		i.note("staging begins at " + i.StageFrom.Format(time.RFC3339))
	}
	return i
}

// observed says of an image what its container does; nil: CRI does not show it.
func (f *facts) observed(v follow.PodView, w follow.Want, c *node.Container, i *ImagePlan) {
	if e, is := v.Expects(w, f.inv); is {
		i.Expected = &e
		if i.Down = e.Down(f.pods, f.now); i.Down != nil && !i.Down.Starting && !e.IsExplained(f.pods) {
			if why := f.pullProblem(v, w); why != "" {
				i.Down.Message = strings.TrimPrefix(i.Down.Message+"; "+why, "; ")
			}
		}
	}
	if c == nil {
		return
	}
	mayEnd := w.Image.Kind == manifests.KindInit || v.Was.Once
	i.Well = c.Running || mayEnd && c.Succeeded()
	age := f.now.Sub(c.StartedAt)
	i.Flaps = c.Restarts > 0 && age >= 0 && age < flapTime
	i.Running.Digest, i.Config = f.held.DigestOf(c), c.Image
	if u, is := f.rec.Unchecked[v.File]; is && strings.Contains(u.Running, string(i.Running.Digest)) {
		i.note(u.Reason)
	}
}

// wasThere reports whether a tag is known to have existed: the record or the node has an image for it.
func (f *facts) wasThere(q release.Question) bool {
	ref := release.Reference{Repository: q.Repository, Tag: q.Tag}
	h, is := f.held.Named(ref.String())
	return f.known[ref] || is && h.NotImage == ""
}

// running returns the digest that a container runs, or last ran.
func (f *facts) running(w follow.Want, c *node.Container, good record.Good) digest.Digest {
	switch {
	case c != nil && c.Image != "":
		return f.held.DigestOf(c)
	case node.IsContainer(w.Image) && good.Repository == w.Ask.Repository:
		return good.Running
	}
	return ""
}

// sameImage compares the target with the last known good image of a container that CRI does not show.
func (f *facts) sameImage(good record.Good, target release.Release) bool {
	config := f.rec.Releases[release.Key(good.Repository, good.Running)].Config
	return good.Running == target.Digest || (config != "" && config == target.Config)
}

// nameOf returns the long tag of a running digest, else the tag of the pod manifest.
func (f *facts) nameOf(w follow.Want, running digest.Digest) string {
	if r, ok := f.rec.Releases[release.Key(w.Ask.Repository, running)]; ok && running != "" {
		return r.Name()
	}
	return w.OnDisk.Tag
}

// target chooses the newest release that no rule refuses, or else the running one. The current rules and the running
// release decide, not those at the time of the poll.
func (f *facts) target(w follow.Want, i *ImagePlan, rule policy.Rule, running digest.Digest) {
	o := i.Offer
	is := release.Release{}
	against := func(rel release.Release) (policy.Refusal, bool) { return f.refuses(rel, rule) }
	if running != "" && w.OnDisk.Repository == o.Repository && !release.IsPlaceholder(w.OnDisk.Tag) {
		is = f.rec.Releases[release.Key(o.Repository, running)]
		is.Repository, is.Tag, is.Digest = o.Repository, w.OnDisk.Tag, running
		if is.Origin == "" {
			is.Origin = f.held.OriginOf(running)
		}
		against = func(rel release.Release) (policy.Refusal, bool) { return f.refusal(w, i, is, rel, rule) }
	}
	if running == "" && w.OnDisk.Repository == o.Repository {
		against = func(rel release.Release) (policy.Refusal, bool) { return f.refusesDown(w, rel, rule) }
	}
	choice := rule
	choice.Older = rule.Older || f.inv.Catalog.IsListed(o.Repository) // its publisher has decided what is newer
	c := o.Choose(choice, f.now, against)
	if i.Target = c.Newest; c.Newest.Tag == o.Follow.Tag {
		if no, refused := against(o.Follow); refused {
			c.Refused, i.Target = append(c.Refused, no), is
			if o.Follow.Digest == is.Digest {
				c.RunningRefused = no
			}
		}
	}
	f.explainChoice(i, c, rule)
	f.noteContradiction(i, is, rule)
	if i.Target.Digest == "" {
		// No release is known to run, and the offered one is refused: leave the pod unresolved.
		no := c.Refused[len(c.Refused)-1]
		i.Offer.Follow, i.Offer.Newest, i.Target = release.Release{}, release.Release{}, release.Release{}
		i.Offer.Err = errors.New(no.String())
	}
}

// refusesDown refuses a release for a container whose last release is unknown. The image on the node with the pod
// manifest's tag shows its origin.
func (f *facts) refusesDown(w follow.Want, rel release.Release, rule policy.Rule) (policy.Refusal, bool) {
	if no, refused := f.refuses(rel, rule); refused {
		return no, true
	}
	h, _ := f.held.Named(w.OnDisk.String())
	if h.Origin == "" {
		return policy.Refusal{}, false
	}
	return policy.ForeignOrigin(release.Release{Tag: w.OnDisk.Tag, Build: release.Build{Origin: h.Origin}}, rel)
}

// noteContradiction notes that name and time of the target contradict those of the running release, or of the followed
// one. A catalog's publisher, or an admin who allows older builds, has decided which one is newer.
func (f *facts) noteContradiction(i *ImagePlan, is release.Release, rule policy.Rule) {
	if i.Target.Digest == is.Digest {
		return
	}
	text := policy.Contradiction(is, i.Target, rule.Scheme, f.now)
	if text == "" && i.Target.Digest != i.Offer.Follow.Digest {
		text = policy.Contradiction(i.Offer.Follow, i.Target, rule.Scheme, f.now)
	}
	if text == "" {
		return
	}
	i.note(text)
	if !rule.Older && !f.inv.Catalog.IsListed(i.Target.Repository) {
		i.Contradiction = text
	}
}

// explainChoice stores why the choice skipped releases.
func (f *facts) explainChoice(i *ImagePlan, c source.Choice, rule policy.Rule) {
	var newer []policy.Refusal
	i.RebuildsOnly = f.rebuildsOnly(i.Offer, rule)
	facts := i.Offer.Refused
	i.Offer.Newest, i.Offer.Refused = c.Newest, nil
	for _, no := range append(c.Refused, facts...) {
		if t, err := rule.Scheme.Parse(no.Tag); err == nil && no.Rule == policy.RulePublishing {
			if by, refused := rule.RefusesTag(t, tags.Rebuild); refused {
				no = by // the rule refuses it anyway: do not wait for it
			}
		}
		if no != c.RunningRefused {
			newer = append(newer, no)
		}
		no.Holds = no.IsAwaited(f.now)
		if len(i.Offer.Refused) < source.MaxRefused && !slices.Contains(i.Offer.Refused, no) {
			i.Offer.Refused = append(i.Offer.Refused, no)
		}
	}
	i.NotAllowed = policy.ByConfiguration(newer)
	for _, text := range c.Notes {
		i.note(text)
	}
	for _, n := range i.Offer.LooksNewer {
		i.note("looks newer, but cannot be compared: " + n.String())
	}
	if c.Unresolved >= 0 {
		i.note(i.Offer.Newer[c.Unresolved].ListedTag() + " may be newer; the next check asks for it")
	}
}

// rebuildsOnly returns why nothing is newer than a followed tag: it has no order, or the configured pattern takes no
// other tag of the list.
func (f *facts) rebuildsOnly(o source.Offer, rule policy.Rule) *status.RebuildsOnly {
	list := f.rec.Lists[o.Repository]
	listed := slices.Concat(list.Tags, list.Unread)
	r := status.RebuildsOnlyOf(o.Follow.Tag, rule.Scheme, listed)
	isCurrent := f.rec.Offers[o.Question.String()].Rules == rule.Fingerprint() // the list was read by this pattern
	if r != nil || rule.Scheme.Pattern() == "" || !isCurrent || list.Error != "" || list.Unrecognized == 0 ||
		f.inv.Catalog.IsListed(o.Repository) || o.Follow.Tag == "" {
		return r
	}
	isOther := func(tag string) bool {
		_, err := rule.Scheme.Parse(tag)
		return err == nil && tag != o.Follow.Tag
	}
	if slices.ContainsFunc(list.Tags, isOther) {
		return nil
	}
	return &status.RebuildsOnly{
		Tag: o.Follow.Tag, Pattern: tags.PatternFor(o.Follow.Tag, listed),
		Reason: fmt.Sprintf("tags.pattern matches none of the other tags in the list (%d)", list.Unrecognized+list.Malformed),
	}
}

// refusal returns why rel must not replace the running release. A weaker doubt becomes a note.
func (f *facts) refusal(
	w follow.Want, i *ImagePlan, was, rel release.Release, rule policy.Rule,
) (policy.Refusal, bool) {
	same := rel.Digest == was.Digest || rel.Config != "" && rel.Config == was.Config
	if same && rel.Tag == w.OnDisk.Tag {
		return policy.Refusal{}, false
	}
	if no, refused := f.refuses(rel, rule); refused || same {
		return no, refused
	}
	if no, refused := policy.ForeignOrigin(was, rel); refused {
		return no, true
	}
	change := policy.ReleaseChange(was, rel, rule)
	if no, refused := rule.RefusesUpgrade(change, rel.Name(), rel.Tag); refused {
		return no, true
	}
	// The pod manifest already has the wanted tag: only the source changed.
	bySource := w.Ask.Tag == w.OnDisk.Tag || policy.AreEquivalent(w.Ask.Tag, w.OnDisk.Tag, rule)
	if change > rule.Updates && bySource {
		return rule.RefuseChange(rel.Name(), change), true
	}
	reason := ""
	switch {
	case rel.Tag == w.OnDisk.Tag, policy.AreEquivalent(was.Long, rel.Tag, rule),
		rel.Tag == i.Offer.Follow.Tag && policy.AreEquivalent(w.OnDisk.Tag, rel.Tag, rule):
		older, warning := policy.IsOlder(was, rel, rule.Scheme, f.now)
		if warning != "" {
			i.note(warning)
		}
		if older {
			reason = rel.Tag + " moved to an older build: the running one is newer"
		}
	case rule.Follow == "" && policy.IsLower(rel.Tag, was.Long, rule.Scheme):
		reason = was.Long + " is running and is newer" // after a rollback to a higher tag
	}
	return policy.Refusal{
		Tag: rel.Name(), Rule: policy.RuleOlder, Reason: reason, Key: "older: true",
	}, reason != "" && !rule.Older && !f.policy.Catalog.AllowsLower(f.inv.Catalog, was)
}

// refuse adds a refusal. It copies the slice, which the offer shares with the record.
func (i *ImagePlan) refuse(no policy.Refusal) {
	if !slices.Contains(i.Offer.Refused, no) {
		i.Offer.Refused = append([]policy.Refusal{no}, i.Offer.Refused...)
	}
}

// note adds a note to a copy of the notes.
func (i *ImagePlan) note(text string) {
	if !slices.Contains(i.Offer.Notes, text) {
		i.Offer.Notes = append(slices.Clone(i.Offer.Notes), text)
	}
}

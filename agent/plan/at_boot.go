// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/manifests"
)

// BootStep is the decision about one pod manifest that differs from its template.
type BootStep struct {
	Step       // Do is empty if the file is kept
	Reason     string
	Err        error    // set by the caller: the step failed
	Ends       []string // places of its override that the template replaces
	IsRendered bool     // Was equals the rendered template, whatever the record has
	Images     []ImagePlan
}

// AtBoot plans the writes before kubelet starts. It is pure.
func AtBoot(inv node.Inventory, rec record.Record, p policy.Policy, now time.Time) []BootStep {
	f, views := observed(inv, nil, rec, p, now)
	var steps []BootStep
	for _, v := range views {
		s := BootStep{Step: Step{File: v.File, Was: node.PodFile{Name: v.File}}}
		if v.Disk != nil {
			s.Was = *v.Disk
		}
		f.atBoot(v, &s)
		switch {
		case s.Do == "" && s.Reason == "" && !s.IsRendered:
			continue
		case s.Do != "" && inv.Busy != "":
			s.keepAsIs("%s", inv.Busy)
		}
		steps = append(steps, s)
	}
	f.keepHalvesAtBoot(views, steps)
	return steps
}

func (s *BootStep) keepAsIs(format string, args ...any) {
	s.Do, s.Data, s.Reason = "", nil, fmt.Sprintf(format, args...)
}

func (f *facts) atBoot(v follow.PodView, s *BootStep) {
	p := PodPlan{File: v.File, Pod: v.Pod.Name, Role: v.Role()}
	switch {
	case v.Err != nil:
		s.keepAsIs("%v", v.Err)
	case v.Duplicate.Is():
		s.keepAsIs("%s: %s", status.HoldDuplicate, v.Duplicate)
	case v.ReadOnly != nil:
		// The agent must not write it.
	case v.Override.Pending:
		if string(s.Was.Data) != v.Override.Data {
			s.Do, s.Data, s.Ours, s.Reason = StepWrite, []byte(v.Override.Data), v.Template != nil, v.Override.Reason
		}
	case f.planOrphan(v, &p):
		s.Do, s.Reason = StepRemove, "its template is gone"
		f.holdAtBoot(v, p, s)
	case v.Template == nil || !v.Managed:
		// The agent does not manage it.
	default:
		f.renderTemplate(v, &p, s)
	}
}

// holdAtBoot keeps a held pod manifest. Holds on images that the template drops count, too.
func (f *facts) holdAtBoot(v follow.PodView, p PodPlan, s *BootStep) {
	for _, img := range v.Was.Images {
		if ref, err := release.ParseReference(img.Reference); err == nil {
			p.Images = append(p.Images, ImagePlan{Want: follow.Want{Ask: release.Question{Repository: ref.Repository}}})
		}
	}
	f.addHolds(&p)
	f.addWaits(&p)
	if len(p.Holds) > 0 {
		s.keepAsIs("%s: %s", p.Holds[0].Name, p.Holds[0].Reason)
	}
}

// renderTemplate renders the template with its own tags, or with those on disk if they are higher.
func (f *facts) renderTemplate(v follow.PodView, p *PodPlan, s *BootStep) {
	why := ""
	for _, w := range v.Wants {
		i := ImagePlan{Want: w}
		var moves bool
		i.Target, moves = f.bootTarget(w)
		at, named := v.PinnedAt(w.Image)
		switch {
		case named && !moves:
			i.Target.Digest = at.Digest
		case !moves && i.Target.Digest == "":
			i.Target.Digest = v.Bound[node.PlaceOf(w.Image)].Digest
		case named && i.Target.Digest != at.Digest:
			s.Ends = append(s.Ends, node.PlaceOf(w.Image))
		}
		if moves && why == "" {
			why = f.bootRefusal(v, i.Target, w)
		}
		i.Bound = f.binds(v, i)
		p.Images = append(p.Images, i)
	}
	f.render(v, p)
	s.Images = p.Images
	switch {
	case p.Err != nil:
		s.keepAsIs("%v", p.Err)
	case v.Disk != nil && !p.Waiting:
		_, once := f.rec.Wrote[v.File]
		s.IsRendered = once && !f.unedited(*v.Disk) && p.matches(v.Disk)
	case v.Disk != nil && !f.unedited(*v.Disk):
		s.keepAsIs("it was changed since the agent wrote it")
	case v.Disk != nil && f.isConfigured(v, *p):
		s.keepAsIs("only its pull policy would change")
	case why != "":
		s.keepAsIs("%s", why)
	case v.Disk == nil:
		s.Do, s.Data, s.Ours, s.Reason = StepWrite, p.Wanted, true, "its template is new"
	default:
		s.Do, s.Data, s.Ours, s.Reason = StepWrite, p.Wanted, true, "its template has changed"
		f.holdAtBoot(v, *p, s)
	}
}

// isConfigured reports whether only the pull policy differs: that change comes from the
// configuration, not from a new system.
func (f *facts) isConfigured(v follow.PodView, p PodPlan) bool {
	other := *f
	other.policy.PullPolicy = manifests.PullAlways
	if f.policy.PullPolicy == manifests.PullAlways {
		other.policy.PullPolicy = manifests.PullIfNotPresent
	}
	other.render(v, &p)
	return p.Err == nil && !p.Waiting
}

// unedited reports whether the pod manifest is as the agent last wrote it.
func (f *facts) unedited(disk node.PodFile) bool {
	return f.rec.Wrote[disk.Name] == digest.FromBytes(disk.Data)
}

// BootErrors joins the errors of the steps.
func BootErrors(steps []BootStep) error {
	var all []error
	for _, s := range steps {
		if s.Err != nil {
			all = append(all, fmt.Errorf("%s: %w", s.File, s.Err))
		}
	}
	return errors.Join(all...)
}

// keepHalvesAtBoot keeps each pod manifest that would start a release of a set while another pod of the node does not
// get its release: the set is offered later, as a whole.
func (f *facts) keepHalvesAtBoot(views []follow.PodView, steps []BootStep) {
	why := func(n int) string { return f.lackedAtBoot(steps[n], views, steps) }
	untilStable(len(steps), why, func(n int, why string) { steps[n].keepAsIs("%s: %s", status.HoldSet, why) })
}

// lackedAtBoot returns what the sets of a step lack; "" if nothing.
func (f *facts) lackedAtBoot(s BootStep, views []follow.PodView, steps []BootStep) string {
	if s.Do != StepWrite {
		return ""
	}
	for _, i := range s.Images {
		is, _ := f.inv.Catalog.Find(i.Target.Repository, i.Target.Digest)
		if _, moves := f.bootTarget(i.Want); !moves {
			continue
		}
		for _, m := range f.inv.Catalog.MembersOf(i.Target.Repository, is) {
			for _, v := range views {
				if !f.getsAtBoot(v, m, steps) {
					return is.Set + ": " + v.File + " does not start with " + m.String()
				}
			}
		}
	}
	return ""
}

// getsAtBoot reports whether a pod starts with a release of a set or a higher one, or does not need it.
func (f *facts) getsAtBoot(v follow.PodView, m release.Reference, steps []BootStep) bool {
	if v.Err != nil {
		return !f.ranIn(v.File, m.Repository)
	}
	at := slices.IndexFunc(steps, func(s BootStep) bool { return s.File == v.File && s.Do == StepWrite })
	for _, w := range v.Wants {
		if w.Ask.Repository != m.Repository {
			continue
		}
		g := f.rec.Good[record.GoodKey(v.File, w.Image.Container)]
		is := release.Release{Digest: g.Running, Tag: f.rec.NameOf(m.Repository, g.Running)}
		if at >= 0 {
			is = targetOf(steps[at], w)
		}
		if !f.isAbove(m, is.Digest, cmp.Or(is.Long, is.Tag)) {
			return false
		}
	}
	return true
}

// targetOf returns the release with which a step starts an image.
func targetOf(s BootStep, w follow.Want) release.Release {
	for _, i := range s.Images {
		if i.Want.Image == w.Image {
			return i.Target
		}
	}
	return release.Release{}
}

// bootTarget returns the release that an image must follow at boot. moves: the pod manifest follows another one. A tag
// that only the configuration names is offered later, not applied at boot.
func (f *facts) bootTarget(w follow.Want) (target release.Release, moves bool) {
	ask := w.Ask
	if ask.Repository == "" {
		return release.Release{}, false // the template decides
	}
	rule := f.policy.RuleFor(ask.Repository)
	target = release.Release{Repository: ask.Repository, Tag: ask.Tag}
	on := w.OnDisk
	if on.Repository == ask.Repository && (rule.Follow != "" || on.Tag == ask.Tag) {
		target.Tag = on.Tag
		return target, false
	}
	// Prefer the intermediate tag that the last poll found for a short one.
	if known := f.rec.Offers[ask.String()].Follow; policy.AreEquivalent(ask.Tag, known.Tag, rule) {
		target.Tag = known.Tag
	}
	ref := release.Reference{Repository: target.Repository, Tag: target.Tag}
	if is, ok := f.inv.Catalog.Newest(ref, rule.Scheme, format.Release.IsOffered); ok {
		target.Digest, target.Long = is.Digest, is.Tag
		return target, true
	}
	return f.lastSeen(ref), true
}

// lastSeen returns the last known release of a tag: on the node if kubelet starts images from there, else from the last
// answer of the source.
func (f *facts) lastSeen(ref release.Reference) release.Release {
	is := release.Release{Repository: ref.Repository, Tag: ref.Tag}
	if f.policy.PullPolicy == manifests.PullIfNotPresent {
		if h, found := f.held.Named(ref.String()); found {
			is.Digest = h.Digest
			return is
		}
	}
	var at time.Time
	for _, key := range slices.Sorted(maps.Keys(f.rec.Offers)) {
		o := f.rec.Offers[key]
		for _, r := range []release.Release{o.Follow, o.Newest} {
			asked := strings.TrimSuffix(key, release.KubeadmSuffix) == ref.String() && r.Digest == o.Follow.Digest
			if r.Repository == ref.Repository && (r.Tag == ref.Tag || asked) && !o.At.Before(at) {
				is, at = r, o.At
			}
		}
	}
	return is
}

// bootRefusal returns why the pod must not start with its template's image; "" if it may.
func (f *facts) bootRefusal(v follow.PodView, target release.Release, w follow.Want) string {
	name, on := target.Repository+":"+target.Tag, w.OnDisk
	rule := f.policy.RuleFor(target.Repository)
	if no, refused := f.refuses(target, rule); refused {
		return no.String()
	}
	_, isThere := f.held.Named(name) // kubelet finds it
	switch {
	case rule.Signatures == policy.SignaturesRequire && f.rec.Signed[release.Key(target.Repository, target.Digest)] == "":
		return name + ": no signature is known"
	case on.Repository != "" && host(on.Repository) != host(target.Repository):
		// A rewrite changed the registry, which may not serve the image.
		return name + ": from another registry than " + on.Repository
	case follow.Higher(target.Tag, on.Tag, rule.Scheme) != target.Tag:
		return name + ": lower than " + on.Tag
	case policy.IsLower(target.Tag, v.Override.Images[node.PlaceOf(w.Image)].Tag, rule.Scheme):
		return name + ": lower than the release that the pod was rolled back to"
	case v.Disk != nil && f.policy.PullPolicy == manifests.PullIfNotPresent && !isThere:
		return name + ": not on the node"
	}
	return ""
}

// host returns the registry of a repository.
func host(repository string) string {
	name, _, _ := strings.Cut(repository, "/")
	return name
}

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// steps converts the plans of all pods to steps. Each step may rely on earlier ones: images, files, pins, and finally
// restarts.
func (f *facts) steps(views []follow.PodView, plan Plan) []Step {
	f.urgent = f.urgentReleases(plan)
	lost := f.lost(views, plan.Pods)
	steps := f.stage(plan, lost)
	var applies []Step
	for n, v := range views {
		p := plan.Pods[n]
		steps = append(steps, f.files(v, p)...)
		if s, ok := f.restart(v, p); ok {
			applies = append(applies, s)
		}
	}
	inOrder(f.policy, applies)
	files := follow.FileNames(f.inv)
	for _, w := range f.inv.Waiting {
		if _, is := slices.BinarySearch(files, w.Name); !is {
			steps = append(steps, Step{Do: StepDrop, File: w.Name})
		}
	}
	pins, differ := f.pins(plan, lost)
	if differ {
		steps = append(steps, Step{Do: StepPin, Pins: pins})
	}
	if gone := f.prune(plan, pins); len(gone) > 0 {
		steps = append(steps, Step{Do: StepPrune, Gone: gone})
	}
	return append(steps, applies...)
}

// stage lists the pulls: for offers, for pod manifests that will be written, for configured images, and of lost ones.
func (f *facts) stage(plan Plan, lost []release.Release) []Step {
	seen := map[string]bool{}
	var steps []Step
	add := func(i ImagePlan) {
		key := release.Key(i.Target.Repository, i.Target.Digest)
		if i.Target.Digest == "" || i.Staged || seen[key] || f.lacksSpace(i) {
			return
		}
		seen[key] = true
		steps = append(steps, Step{Do: StepStage, Release: i.Target})
	}
	for _, p := range plan.Pods {
		if f.wantsStaged(p) && !f.stagesLater(p) {
			for _, i := range p.Images {
				if !f.isRunning(i) {
					add(i)
				}
			}
		}
	}
	for _, i := range plan.Tracked {
		if !f.isDelayed(i) {
			add(i)
		}
	}
	for _, rel := range lost {
		if !seen[release.Key(rel.Repository, rel.Digest)] {
			steps = append(steps, Step{Do: StepStage, Release: rel, Lost: true})
		}
	}
	return steps
}

// isRunning reports whether an image runs its target, so that it needs a pin but no pull.
func (f *facts) isRunning(i ImagePlan) bool {
	return i.Change == "" && i.Running.Digest == i.Target.Digest && f.held.Has(i.Target.Digest)
}

// stagesLater reports whether the pulls of a pod are delayed to spread the load. A new pod is
// not delayed.
func (f *facts) stagesLater(p PodPlan) bool {
	if p.Ready || f.onDisk[p.File] == nil {
		return false
	}
	return slices.ContainsFunc(p.Images, f.isDelayed)
}

// isDelayed reports whether the pull of an image is delayed. A time beyond the whole delay was recorded under a wrong
// clock. An image that is already on the node is not delayed.
func (f *facts) isDelayed(i ImagePlan) bool {
	wait := i.Offer.StageFrom.Sub(f.now)
	return i.Target.Digest != "" && !f.held.Has(i.Target.Digest) && wait > 0 && wait <= f.policy.StageDelay &&
		!f.urgent[release.Key(i.Target.Repository, i.Target.Digest)]
}

// urgentReleases returns the releases to pull without delay: for a new pod, or because another question needs them now.
func (f *facts) urgentReleases(plan Plan) map[string]bool {
	out := map[string]bool{}
	add := func(i ImagePlan, isNew bool) {
		if isNew || !f.isDelayed(i) {
			out[release.Key(i.Target.Repository, i.Target.Digest)] = true
		}
	}
	for _, p := range plan.Pods {
		for _, i := range p.Images {
			if f.wantsStaged(p) {
				add(i, f.onDisk[p.File] == nil)
			}
		}
	}
	for _, i := range plan.Tracked {
		add(i, false)
	}
	return out
}

// wantsStaged reports whether the pod's targets must be on the node: they are offered, or the
// pod is new or about to start.
func (f *facts) wantsStaged(p PodPlan) bool {
	isNew := p.Wanted != nil && f.onDisk[p.File] == nil
	return p.Err == nil && !p.IsOwned() && p.Change != policy.ChangeRemove &&
		(p.Change != "" || isNew || slices.ContainsFunc(p.Images, isAboutToStart))
}

// isAboutToStart reports whether no release is known to run, so that kubelet will start the release of the tag.
func isAboutToStart(i ImagePlan) bool {
	return node.IsContainer(i.Want.Image) && i.Running.Digest == "" && !i.Well && i.Change == "" &&
		i.Want.OnDisk == (release.Reference{Repository: i.Target.Repository, Tag: i.Target.Tag})
}

// files returns the steps on the pod's files: writes that restart nothing happen now, others
// are stored until they are approved.
func (f *facts) files(v follow.PodView, p PodPlan) []Step {
	if v.Override.Pending || v.Duplicate.Is() {
		return nil
	}
	if p.Err != nil || p.BlocksOffer() {
		if v.Waiting != nil && !v.Managed {
			return []Step{{Do: StepDrop, File: v.File}} // no longer rendered
		}
		return nil
	}
	busy := f.inv.Busy != ""
	if p.isHeld(status.HoldDisk) && v.Disk == nil {
		return nil // kubelet would pull at once
	}
	was := node.PodFile{Name: v.File}
	if v.Disk != nil {
		was = *v.Disk
	}
	hasContainers := len(f.pods.Containers(v.Pod.Namespace, v.Pod.Name)) > 0
	var needs []string // a write without a restart needs no images
	if v.Disk == nil {
		needs = p.Needs()
	}
	var steps []Step
	switch {
	case p.Change == policy.ChangeRemove && !hasContainers && !busy:
		steps = append(steps, Step{Do: StepRemove, File: v.File, Was: was})
	case p.Waiting && (f.stagesLater(p) || p.isHeld(status.HoldDisk)):
		// Store it for approval while its images are being staged.
	case p.Waiting && (v.Waiting == nil || !bytes.Equal(v.Waiting.Data, p.Wanted)):
		steps = append(steps, Step{Do: StepKeep, File: v.File, Data: p.Wanted, Needs: p.Needs()})
	case p.Wanted != nil && !p.Waiting && !p.matches(v.Disk) && !busy:
		steps = append(steps, Step{
			Do: StepWrite, File: v.File, Was: was, Data: p.Wanted, Ours: v.Template != nil, Needs: needs, Bound: p.bound(),
		})
	}
	if v.Waiting != nil && !p.Waiting {
		steps = append(steps, Step{Do: StepDrop, File: v.File})
	}
	return steps
}

// Needs returns the releases that must be staged for the pod's offer.
func (p *PodPlan) Needs() []string {
	var out []string
	for _, i := range p.Images {
		if i.Target.Digest != "" && !i.RunsTarget() {
			out = append(out, release.Key(i.Target.Repository, i.Target.Digest))
		}
	}
	return out
}

// RunsTarget reports whether an image runs its target, which is on the node.
func (i ImagePlan) RunsTarget() bool { return i.Staged && i.Running.Digest == i.Target.Digest }

// pins returns the releases to protect from garbage collection: running, staged, known good, and previously known good
// ones, and those that are fetched again. differ: the node has other pins.
func (f *facts) pins(plan Plan, lost []release.Release) (want []release.Pin, differ bool) {
	held, have := f.inv.Digests()
	need := f.needed(plan, lost, held)
	mustKeep := plan.mustKeep()
	for p := range have {
		if mustKeep(p) {
			need[p] = true
		}
		differ = differ || !need[p]
	}
	for p := range need {
		differ = differ || !have[p]
		want = append(want, p)
	}
	slices.SortFunc(want, byKey)
	return want, differ
}

// needed returns the releases to protect; held are the digests on the node.
func (f *facts) needed(plan Plan, lost []release.Release, held map[digest.Digest]bool) map[release.Pin]bool {
	need := map[release.Pin]bool{}
	add := func(repository string, dg digest.Digest, isStaging bool) {
		if repository != "" && dg != "" && (held[dg] || isStaging) {
			need[release.Pin{Repository: repository, Digest: dg}] = true
		}
	}
	for _, p := range plan.Pods {
		for _, i := range p.Images {
			add(i.Want.Ask.Repository, i.Target.Digest, f.wantsStaged(p) && !f.stagesLater(p) && !f.lacksSpace(i))
			add(i.Want.Ask.Repository, i.Running.Digest, false)
			// kubelet may start the release followed by the pod manifest on disk at any time.
			add(i.Want.Ask.Repository, i.Offer.Follow.Digest, false)
		}
	}
	for _, i := range plan.Tracked {
		add(i.Target.Repository, i.Target.Digest, !f.isDelayed(i) && !f.lacksSpace(i))
	}
	for _, g := range f.rec.Good {
		add(g.Repository, g.Running, false)
		for _, p := range g.Before {
			add(p.Repository, p.Digest, false)
		}
	}
	for _, p := range f.rec.BeforeSets() {
		add(p.Repository, p.Digest, false)
	}
	for _, rel := range lost {
		add(rel.Repository, rel.Digest, true)
	}
	return need
}

// mustKeep returns a function that reports whether a pin must stay: a pod is unclear, or the new release of a
// configured image is not staged.
func (p Plan) mustKeep() func(release.Pin) bool {
	all := slices.ContainsFunc(p.Pods, func(pod PodPlan) bool { return pod.Err != nil || pod.BlocksOffer() })
	unstaged := map[string]bool{} // repositories
	for _, i := range p.Tracked {
		all = all || i.Target.Digest == ""
		unstaged[i.Target.Repository] = unstaged[i.Target.Repository] || !i.Staged
	}
	return func(pin release.Pin) bool { return all || unstaged[pin.Repository] }
}

// isStaged reports whether a release is on the node and, where required, known to be signed.
func (f *facts) isStaged(rel release.Release) bool {
	signed := f.policy.RuleFor(rel.Repository).Signatures != policy.SignaturesRequire ||
		f.rec.Signed[release.Key(rel.Repository, rel.Digest)] != ""
	return signed && f.held.Staged(rel)
}

// lost returns the releases that the node must have and has lost: those to which pods are rolled back, with the images
// that they keep then, and running ones whose content cannot be read. Somebody has removed them, or the disk did.
func (f *facts) lost(views []follow.PodView, pods []PodPlan) []release.Release {
	need := map[release.Pin]bool{}
	for n, v := range views {
		to, err := f.returnsTo(v, pods[n])
		if err != nil || to == nil {
			continue
		}
		for _, at := range to.Images {
			need[at.Pin] = true
		}
	}
	for _, g := range f.rec.Good {
		for _, p := range g.Before {
			need[p] = true
		}
		if f.held.Has(g.Running) && !f.held.IsReadable(g.Running) {
			need[release.Pin{Repository: g.Repository, Digest: g.Running}] = true
		}
	}
	for _, p := range f.rec.BeforeSets() {
		need[p] = true
	}
	var out []release.Release
	for _, p := range slices.SortedFunc(maps.Keys(need), byKey) {
		if rel := f.releaseOf(p); p.Digest != "" && !f.held.Staged(rel) {
			if _, short := f.shortage(rel); !short {
				out = append(out, rel)
			}
		}
	}
	return out
}

func byKey(a, b release.Pin) int {
	return strings.Compare(release.Key(a.Repository, a.Digest), release.Key(b.Repository, b.Digest))
}

// returnsTo returns the override of a rollback of the whole pod; nil if no other release is known.
func (f *facts) returnsTo(v follow.PodView, p PodPlan) (*record.Override, error) {
	has := slices.ContainsFunc(p.Images, func(i ImagePlan) bool {
		return f.rec.HasTarget(p.File, i.Want.Image.Container, i.Running.Digest)
	})
	if p.Err != nil || !has {
		return nil, p.Err
	}
	return f.byPerson(v, p, All())
}

// releaseOf returns what is known of a release.
func (f *facts) releaseOf(p release.Pin) release.Release {
	if rel, known := f.rec.Releases[release.Key(p.Repository, p.Digest)]; known {
		return rel
	}
	return release.Release{Repository: p.Repository, Digest: p.Digest}
}

// missing returns the images of an override that are not complete on the node, by name.
func (f *facts) missing(o record.Override) []record.PinnedImage {
	var out []record.PinnedImage
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		if at := o.Images[place]; !f.held.Staged(release.Release{Repository: at.Repository, Digest: at.Digest}) {
			out = append(out, at)
		}
	}
	return out
}

// prune lists the image records of old releases: the staged ones, and with Prune.Unstaged all SUSE builds of followed
// repositories. Pinned and used images stay, and so do repositories that are not settled. While any pod is unclear, all
// records stay.
func (f *facts) prune(plan Plan, pins []release.Pin) []node.HeldImage {
	settled, known := f.settled(plan)
	if !known {
		return nil
	}
	need := map[digest.Digest]bool{}
	for _, p := range pins {
		need[p.Digest] = true
	}
	var gone []node.HeldImage
	used := map[digest.Digest]bool{}
	for _, d := range f.inv.Used {
		used[d] = true
	}
	aliases := map[node.HeldImage]bool{}
	for _, h := range f.inv.Held {
		repository, old := f.isOldRelease(h, settled)
		if !old || need[h.Digest] || used[h.Config] {
			continue
		}
		if well, followed := settled[repository]; followed && !well {
			continue
		}
		gone = append(gone, h)
		aliases[node.HeldImage{Name: release.Key(repository, h.Digest), Digest: h.Digest}] = true
		aliases[node.HeldImage{Name: h.Config.String(), Digest: h.Digest}] = true
	}
	gone = append(gone, f.inv.OrphanedAliases(gone, aliases)...)
	slices.SortFunc(gone, func(a, b node.HeldImage) int { return strings.Compare(a.Name, b.Name) })
	return gone
}

// settled returns for each followed repository whether all of its images run as planned. A mounted image volume is not
// visible, so its repository is never settled. known: no pod and no image is unclear.
func (f *facts) settled(plan Plan) (settled map[string]bool, known bool) {
	settled = map[string]bool{}
	add := func(repository string, well bool) {
		before, seen := settled[repository]
		settled[repository] = (before || !seen) && well
	}
	for _, p := range plan.Pods {
		if p.Err != nil || p.BlocksOffer() {
			return nil, false
		}
		for _, i := range p.Images {
			if name := i.Want.Ask.Repository; name != "" {
				add(name, isWell(&p, i))
			}
		}
	}
	for _, i := range plan.Tracked {
		if i.Target.Digest == "" {
			return nil, false
		}
		add(i.Target.Repository, i.Staged)
	}
	return settled, true
}

// isWell reports whether a container runs as it should. A removed init container has succeeded
// if the containers of its pod run.
func isWell(p *PodPlan, i ImagePlan) bool {
	return i.Well || i.Want.Image.Kind == manifests.KindInit && slices.ContainsFunc(p.Images, func(other ImagePlan) bool {
		return other.Well && other.Want.Image.Kind == manifests.KindContainer
	})
}

// isOldRelease reports whether an image record may be an old release, and of which repository.
func (f *facts) isOldRelease(h node.HeldImage, followed map[string]bool) (repository string, is bool) {
	if h.Pin {
		return "", false
	}
	if h.Staged || !f.policy.Prune.Unstaged {
		return h.Repository, h.Staged
	}
	ref, err := release.ParseReference(h.Name)
	if err != nil {
		return "", false
	}
	_, ours := followed[ref.Repository]
	_, unrecognized := f.policy.RuleFor(ref.Repository).Scheme.Parse(ref.Tag)
	return ref.Repository, ours && unrecognized == nil
}

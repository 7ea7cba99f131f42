// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// flapTime is how long a restarted container must run before it counts as stable.
const flapTime = time.Minute

func (f *facts) flaps(c node.Container) bool {
	age := f.now.Sub(c.StartedAt)
	return c.Restarts > 0 && age >= 0 && age < flapTime
}

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
	i.Running.Tag = f.nameOf(w, i.Running.Digest)
	i.From = i.Running.Tag
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
	i.Flaps = f.flaps(*c)
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
	case !node.IsContainer(w.Image):
		return ""
	case c != nil && c.Image != "":
		return f.held.DigestOf(c)
	case good.Repository == w.Ask.Repository:
		return good.Running
	default:
		return ""
	}
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

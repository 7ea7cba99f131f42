// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// flapTime is how long a restarted container has to run before it counts as stable.
const flapTime = time.Minute

func (ip imagePlanner) flaps(c node.Container) bool {
	age := ip.now.Sub(c.StartedAt)
	return c.Restarts > 0 && age >= 0 && age < flapTime
}

// image plans one image of a pod.
func (ip imagePlanner) image(v follow.PodView, w follow.Want, containers []node.Container) ImagePlan {
	i := ImagePlan{Want: w, Offer: ip.offers[w.Ask]}
	var c *node.Container
	if node.IsContainer(w.Image) {
		c = node.FindContainer(containers, w.Image.Container)
	}
	i.Well = c != nil && (c.Running || (w.Image.Kind == manifests.KindInit && !c.StartedAt.IsZero() && c.ExitCode == 0))
	if e, is := v.Expects(w, ip.inv); is {
		i.Expected = &e
		i.Down = e.Down(ip.inv, ip.names, ip.now)
	}
	if c != nil {
		i.Flaps = ip.flaps(*c)
		i.Running.Digest, i.Config = node.DigestOf(c, ip.inv.Held), c.Image
	}
	if w.Ask.Repository == "" || i.Offer.IsUnresolved() {
		return i
	}
	rule := ip.policy.RuleForQuestion(w.Ask)
	good := ip.rec.Good[record.GoodKey(v.File, w.Image.Container)]
	running := ip.running(w, c, good)
	if at, ok := v.PinnedAt(w.Image); ok {
		running = at.Digest // the pinned digest has to run
		i.note(v.Override.Note())
	}
	ip.target(w, &i, rule, running)
	if i.Offer.IsUnresolved() {
		return i
	}
	var same bool
	i.Running.Digest, same = node.RunsTarget(c, i.Target, ip.inv.Held)
	known := c != nil && c.Image != ""
	if !known && node.IsContainer(w.Image) && good.Running != "" && good.Repository == w.Ask.Repository {
		known, same = true, ip.sameImage(good, i.Target)
	}
	i.Change = policy.ChangeOf(w.OnDisk, i.Target, known, same, rule.Dialect)
	if at, ok := v.PinnedAt(w.Image); ok && at.Digest == i.Target.Digest && v.Named[node.PlaceOf(w.Image)] {
		i.Change = "" // the pod manifest names the digest already
	}
	i.Bound = ip.binds(v, i)
	i.Running.Tag = ip.nameOf(w, i.Running.Digest)
	i.From = i.Running.Tag
	// What runs needs no signature: it would only block the other images of its pod.
	i.Staged = ip.isStaged(i.Target) || same && ip.inv.Staged(i.Target)
	if i.Change != "" && ip.isDelayed(i) {
		i.StageFrom = i.Offer.StageFrom.UTC()
		i.note("staging begins at " + i.StageFrom.Format(time.RFC3339))
	}
	return i
}

// running returns the digest that a container runs, or ran last.
func (ip imagePlanner) running(w follow.Want, c *node.Container, good record.Good) digest.Digest {
	switch {
	case !node.IsContainer(w.Image):
		return ""
	case c != nil && c.Image != "":
		return node.DigestOf(c, ip.inv.Held)
	case good.Repository == w.Ask.Repository:
		return good.Running
	default:
		return ""
	}
}

// sameImage compares the target with what last ran, for a container that CRI does not show.
func (ip imagePlanner) sameImage(good record.Good, target release.Release) bool {
	config := ip.rec.Releases[release.Key(good.Repository, good.Running)].Config
	return good.Running == target.Digest || (config != "" && config == target.Config)
}

// nameOf returns the long tag of a running digest, else the tag of the pod manifest.
func (ip imagePlanner) nameOf(w follow.Want, running digest.Digest) string {
	if r, ok := ip.rec.Releases[release.Key(w.Ask.Repository, running)]; ok && running != "" {
		return r.Name()
	}
	return w.OnDisk.Tag
}

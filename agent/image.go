// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/manifests"
)

// flapTime is how long a container that was restarted has to run until nobody has to
// think that it will end again.
const flapTime = time.Minute

func (d *decider) flaps(c Container) bool {
	age := d.now.Sub(c.StartedAt)
	return c.Restarts > 0 && age >= 0 && age < flapTime
}

// image plans one image of a pod.
func (d *decider) image(v podView, w Want, containers []Container) ImagePlan {
	i := ImagePlan{Want: w, Offer: d.offers[w.Ask]}
	var c *Container
	if isContainer(w.Image) {
		c = container(containers, w.Image.Container)
	}
	i.Well = c != nil && (c.Running || (w.Image.Kind == manifests.KindInit && !c.StartedAt.IsZero() && c.ExitCode == 0))
	if e, is := d.expects(v, w); is {
		i.Expected = &e
		i.Down = e.down(d.inv, d.names, d.now)
	}
	if c != nil {
		i.Flaps = d.flaps(*c)
		i.Running.Digest, i.Config = digestOf(c, d.inv.Held), c.Image
	}
	if w.Ask.Repository == "" || i.Offer.Unresolved() {
		return i
	}
	rule := d.policy.ruleOf(w.Ask)
	good := d.rec.Good[goodKey(v.file, w.Image.Container)]
	running := d.running(w, c, good)
	if at, ok := v.overridden(w.Image); ok {
		running = at.Digest // whatever runs: that is what is to run
		i.note(v.override.note())
	}
	d.target(w, &i, rule, running)
	if i.Offer.Unresolved() {
		return i
	}
	var same bool
	i.Running.Digest, same = runs(c, i.Target, d.inv.Held)
	known := c != nil && c.Image != ""
	if !known && isContainer(w.Image) && good.Running != "" && good.Repository == w.Ask.Repository {
		known, same = true, d.sameImage(good, i.Target)
	}
	i.Change = changeOf(w.OnDisk, i.Target, known, same, rule.Dialect)
	if at, ok := v.overridden(w.Image); ok && at.Digest == i.Target.Digest && v.named[placeOf(w.Image)] {
		i.Change = "" // kubelet does what it can
	}
	i.Running.Tag = d.nameOf(w, i.Running.Digest)
	i.From = i.Running.Tag
	// What runs is not asked for its signature any more: it would only keep the
	// other images of its pod.
	i.Staged = d.isStaged(i.Target) || same && d.inv.staged(i.Target)
	if i.Change != "" && d.waits(i) {
		i.StageFrom = i.Offer.StageFrom.UTC()
		i.note("staging begins at " + i.StageFrom.Format(time.RFC3339))
	}
	return i
}

// running is the digest that a container runs, or ran last.
func (d *decider) running(w Want, c *Container, good Good) digest.Digest {
	switch {
	case !isContainer(w.Image):
		return ""
	case c != nil && c.Image != "":
		return digestOf(c, d.inv.Held)
	case good.Repository == w.Ask.Repository:
		return good.Running
	default:
		return ""
	}
}

// sameImage compares what last ran with the target, where CRI shows nothing.
func (d *decider) sameImage(good Good, target Release) bool {
	config := d.rec.Releases[releaseKey(good.Repository, good.Running)].Config
	return good.Running == target.Digest || (config != "" && config == target.Config)
}

// nameOf is the best name for what runs: the long tag its digest had when it
// was learnt, else the tag in the pod manifest.
func (d *decider) nameOf(w Want, running digest.Digest) string {
	if r, ok := d.rec.Releases[releaseKey(w.Ask.Repository, running)]; ok && running != "" {
		return r.Name()
	}
	return w.OnDisk.Tag
}

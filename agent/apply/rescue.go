// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/manifests"
)

// rescueAfter is how long a stopped pod may take to start before its registry is
// asked whether it is still there: kubelet looks once a second, and most pods have
// started by then. A registry that was away for a moment is back soon, and kubelet
// is not: so it is asked while kubelet may just have been.
const rescueAfter = time.Second

// rescuePause is how long kubelet is left alone that may just have been refused: it
// forgets a pod later then. Of pod manifests that were set aside at once, 8 of 17 were
// taken up only 10 to 15 s later; after a second more, none of 8.
const rescuePause = time.Second

// rescuePatience is how long a registry may take to answer; one that takes longer is
// away for a pod that is down.
const rescuePatience = 2 * time.Second

// rescueAnyway is when kubelet is already in its pull back-off: it has asked the registry
// once while that was away, and asks again after 10 to 15 s.
const rescueAnyway = 4 * time.Second

// rescueLast is the same where kubelet met the old pod, and lets the new one wait for
// 10 to 15 s by itself.
const rescueLast = 16 * time.Second

// rescue brings up a pod whose registry went away between its stop and its start.
// Pull policy Always makes the registry part of the start, and kubelet waits ever
// longer between two tries; the image is on the node, so it is named by its digest.
type rescue struct {
	*restart
	next time.Duration // after its stop, when the registry is asked
	lost string        // why the registry was away when it was asked; empty: it was not
	done bool
}

// look is told what the proof sees, and helps if nothing else does: then it returns
// what is to be expected from then on. The nil rescue never helps.
func (r *rescue) look(ctx context.Context, is podObservation, since time.Time) []plan.Expectation {
	if r == nil || r.done || r.step.Apply.PullFirst || is.started || ctx.Err() != nil {
		return nil
	}
	waited := time.Since(since).Round(proofInterval / 2) // an observation comes a little early, or late
	if waited < r.next {
		return nil
	}
	r.next *= 2 // a pod that does not start may be so for long
	why := "not started " + waited.Round(time.Second).String() + " after its stop"
	if r.lost != "" {
		why = "registry away: " + r.lost
	} else if err := r.away(ctx); err != nil {
		r.lost, r.next = err.Error(), waited+rescuePause
		return nil
	} else if waited < rescueAnyway || r.shutdownTimedOut && waited < rescueLast {
		return nil
	}
	r.done = true
	r.Log.Warn("pod does not start, its staged digest is named", "file", r.step.File, "reason", why)
	expect, err := r.pinToStagedDigest(ctx, "in the middle of an apply: "+why)
	if err != nil {
		r.Log.Warn("staged digest not named", "file", r.step.File, "err", err)
		return nil
	}
	return expect
}

// away is why what kubelet pulls cannot be had; nil: it can.
func (r *rescue) away(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rescuePatience)
	defer cancel()
	for _, e := range r.step.Apply.Expect {
		if e.OnNode {
			continue
		}
		if _, err := r.resolve(ctx, e.Ref); err != nil {
			return err
		}
	}
	return nil
}

// pinToStagedDigest names the digests of the whole pod: the other containers need a
// registry as well once the pod manifest is another. What is cut short goes on as a
// rollback.
func (r *rescue) pinToStagedDigest(ctx context.Context, reason string) ([]plan.Expectation, error) {
	file, rec := r.step.File, &r.Records.Record
	now, err := r.currentManifest(ctx)
	if err != nil {
		return nil, err
	}
	before, replaced := rec.Overrides[file]
	o, err := r.stagedOverride(before, now, reason)
	if err != nil {
		return nil, err
	}
	if err := r.provideAll(ctx, o); err != nil {
		return nil, err
	}
	rec.Overrides.Set(file, o)
	var s plan.Step
	if err = r.Records.Save(ctx); err == nil {
		s, err = r.stepTo(ctx, o, now)
	}
	if err == nil {
		err = r.act(ctx, s)
	}
	switch {
	case ctx.Err() != nil:
		return nil, err
	case err == nil:
		o.Pending = false
		rec.Overrides.Set(file, o)
	case replaced:
		rec.Overrides.Set(file, before)
	default:
		rec.Overrides.Delete(file)
	}
	return s.Apply.Expect, errors.Join(err, r.Records.Save(ctx))
}

// stagedOverride names what the step was to start by its digests.
func (r *rescue) stagedOverride(before record.Override, now []byte, reason string) (record.Override, error) {
	text := now
	if r.step.Data != nil {
		text = r.step.Data // it may not be written yet
	}
	was, err := before.Unpinned(node.PodFile{Name: r.step.File, Data: text})
	if err != nil {
		return record.Override{}, err
	}
	o, err := record.Pin(was.Data, reason, r.Now(), func(img manifests.Image) record.PinnedImage {
		return r.step.Apply.Ahead[node.PlaceOf(img)]
	})
	o.From = digest.FromBytes(now)
	return o, err
}

// stepTo is the step that brings the pod from its pod manifest of now to an override.
func (r *rescue) stepTo(ctx context.Context, o record.Override, now []byte) (plan.Step, error) {
	all, _, err := r.Pods.Containers(ctx)
	if err != nil {
		return plan.Step{}, fmt.Errorf("containers: %w", err)
	}
	inv := node.Inventory{Containers: all, NodeName: r.Policy.NodeName}
	return plan.StepTo(o, node.PodFile{Name: r.step.File, Data: now}, r.step.Ours, inv, r.step.Apply.Siblings)
}

// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/manifests"
)

// rescueAfter is how long a stopped pod may take to start before its registry is asked whether
// it answers. kubelet relists once a second, so most pods have started by then.
const rescueAfter = time.Second

// rescuePause is the wait after kubelet's failed pull before the digest is pinned: kubelet
// forgets a pod later then. Of pod manifests that were set aside at once, kubelet started 8 of
// 17 only 10 to 15 s later; after a second more, none of 8.
const rescuePause = time.Second

// registryTimeout is how long a registry may take to answer while a pod is down.
const registryTimeout = 2 * time.Second

// pullBackoffBegins is when kubelet is in its pull back-off: it has asked the registry once,
// and asks again after 10 to 15 s.
const pullBackoffBegins = 4 * time.Second

// lateBackoffBegins is the same for a pod that did not go down in time: kubelet delays the new
// pod by 10 to 15 s.
const lateBackoffBegins = 16 * time.Second

// rescue starts a pod whose registry went away between its stop and its start. With pull
// policy Always kubelet asks the registry and waits ever longer between two tries. The image
// is on the node, so the pod manifest is pinned to its digest.
type rescue struct {
	*restart
	next    time.Duration // after the stop, when the registry is asked again
	pullErr error         // of the registry when it was asked; nil: it answered
	done    bool
}

// try pins the pod to its staged digests if it does not start and kubelet does not start it
// soon. Then it returns what is expected of the pod from then on. began is when the proof
// began. The nil rescue does nothing.
func (r *rescue) try(ctx context.Context, o podObservation, began time.Time) []plan.Expectation {
	if r == nil || r.done || r.step.Apply.PullFirst || o.started || ctx.Err() != nil || r.isAnswered() {
		return nil
	}
	waited := time.Since(began).Round(proofInterval / 2) // observations are not exactly on time
	if waited < r.next {
		return nil
	}
	r.next *= 2
	why := "not started " + waited.Round(time.Second).String() + " after its stop"
	if r.pullErr != nil {
		why = "registry away: " + r.pullErr.Error()
	} else if r.pullErr = r.checkRegistry(ctx); r.pullErr != nil {
		r.next = waited + rescuePause
		return nil
	} else if waited < pullBackoffBegins || r.shutdownTimedOut && waited < lateBackoffBegins {
		return nil
	}
	r.done = true
	r.Log.Warn("pod does not start, pinning its staged digest", "file", r.step.File, "reason", why)
	expect, err := r.pinToStagedDigest(ctx, "in the middle of an apply: "+why)
	if err != nil {
		r.Log.Warn("staged digest not pinned", "file", r.step.File, "err", err)
		return nil
	}
	return expect
}

// isAnswered reports whether the own host answers all that kubelet pulls.
func (r *rescue) isAnswered() bool {
	return !slices.ContainsFunc(r.step.Apply.Expect, func(e plan.Expectation) bool {
		return !e.OnNode && answersPull(r.OwnHost, e) == ownhost.Off
	})
}

// checkRegistry asks for each tag that kubelet pulls and the own host does not answer.
func (r *rescue) checkRegistry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	for _, e := range r.step.Apply.Expect {
		if e.OnNode || answersPull(r.OwnHost, e) != ownhost.Off {
			continue
		}
		if err := r.asks(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// pinToStagedDigest pins the whole pod, because a changed pod manifest restarts all its
// containers. If it is interrupted, the next cycle continues it as a rollback.
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
	if err := r.provide(ctx, o); err != nil {
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

// stagedOverride pins what the step starts to its digests.
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
		at := r.step.Apply.Digests[node.PlaceOf(img)]
		if d := manifests.SplitReference(img.Reference).Digest; d != "" && digest.Digest(d) != at.Digest {
			return record.PinnedImage{} // a person wrote it
		}
		return at
	})
	o.From = digest.FromBytes(now)
	return o, err
}

// stepTo is the step from the current pod manifest to an override.
func (r *rescue) stepTo(ctx context.Context, o record.Override, now []byte) (plan.Step, error) {
	inv, err := r.inventory(ctx)
	if err != nil {
		return plan.Step{}, fmt.Errorf("containers: %w", err)
	}
	return plan.StepTo(o, node.PodFile{Name: r.step.File, Data: now}, r.step.Ours, inv, r.step.Apply.Siblings)
}

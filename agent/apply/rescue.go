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

// rescue is what is known of the start of a pod that was stopped. Its registry may go away between its stop and its
// start: with pull policy Always kubelet asks the registry and waits ever longer between two tries. The image is on the
// node, so the pod manifest is pinned to its digest.
type rescue struct {
	next    time.Duration // after the stop, when the registry is asked again
	pullErr error         // of the registry when it was asked; nil: it answered
	done    bool
}

// tryRescue pins the pod to its staged digests if it does not start and kubelet does not start it
// soon. Then it returns what is expected of the pod from then on. began is when the proof
// began. Without a rescue it does nothing.
func (a *attempt) tryRescue(ctx context.Context, o podObservation, began time.Time) []plan.Expectation {
	r := a.rescue
	if r == nil || r.done || a.step.Apply.PullFirst || o.started || ctx.Err() != nil || a.isAnswered() {
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
	} else if r.pullErr = a.checkRegistry(ctx); r.pullErr != nil {
		r.next = waited + rescuePause
		return nil
	} else if waited < pullBackoffBegins || a.shutdownTimedOut && waited < lateBackoffBegins {
		return nil
	}
	r.done = true
	a.Log.Warn("pod does not start, pinning its staged digest", "file", a.step.File, "reason", why)
	expect, err := a.pinToStagedDigest(ctx, "in the middle of an apply: "+why)
	if err != nil {
		a.Log.Warn("staged digest not pinned", "file", a.step.File, "err", err)
		return nil
	}
	return expect
}

// isAnswered reports whether the own host answers all that kubelet pulls.
func (a *attempt) isAnswered() bool {
	return !slices.ContainsFunc(a.step.Apply.Expect, func(e plan.Expectation) bool {
		return !e.OnNode && answersPull(a.OwnHost, e) == ownhost.Off
	})
}

// checkRegistry asks for each tag that kubelet pulls and the own host does not answer.
func (a *attempt) checkRegistry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	for _, e := range a.step.Apply.Expect {
		if e.OnNode || answersPull(a.OwnHost, e) != ownhost.Off {
			continue
		}
		if err := a.asks(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// pinToStagedDigest pins the whole pod, because a changed pod manifest restarts all its
// containers. If it is interrupted, the next cycle continues it as a rollback.
func (a *attempt) pinToStagedDigest(ctx context.Context, reason string) ([]plan.Expectation, error) {
	file, rec := a.step.File, &a.Records.Record
	now, err := a.currentManifest(ctx)
	if err != nil {
		return nil, err
	}
	before, replaced := rec.Overrides[file]
	o, err := a.stagedOverride(before, now, reason)
	if err != nil {
		return nil, err
	}
	if err := a.provide(ctx, o); err != nil {
		return nil, err
	}
	rec.Overrides.Set(file, o)
	var s plan.Step
	if err = a.Records.Save(ctx); err == nil {
		s, err = a.stepTo(ctx, o, now)
	}
	if err == nil {
		err = a.act(ctx, s)
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
	return s.Apply.Expect, errors.Join(err, a.Records.Save(ctx))
}

// stagedOverride pins what the step starts to its digests.
func (a *attempt) stagedOverride(before record.Override, now []byte, reason string) (record.Override, error) {
	text := now
	if a.step.Data != nil {
		text = a.step.Data // it may not be written yet
	}
	was, err := before.Unpinned(node.PodFile{Name: a.step.File, Data: text})
	if err != nil {
		return record.Override{}, err
	}
	o, err := record.Pin(was.Data, reason, a.Now(), func(img manifests.Image) record.PinnedImage {
		at := a.step.Apply.Digests[node.PlaceOf(img)]
		if d := manifests.SplitReference(img.Reference).Digest; d != "" && digest.Digest(d) != at.Digest {
			return record.PinnedImage{} // a person wrote it
		}
		return at
	})
	o.From = digest.FromBytes(now)
	return o, err
}

// stepTo is the step from the current pod manifest to an override.
func (a *attempt) stepTo(ctx context.Context, o record.Override, now []byte) (plan.Step, error) {
	inv, err := a.inventory(ctx)
	if err != nil {
		return plan.Step{}, fmt.Errorf("containers: %w", err)
	}
	return plan.StepTo(o, node.PodFile{Name: a.step.File, Data: now}, a.step.Ours, inv, a.step.Apply.Siblings)
}

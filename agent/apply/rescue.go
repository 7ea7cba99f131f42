// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/manifests"
)

// rescueAfter is the time that a stopped pod has to start before the agent checks its registry. kubelet relists once a
// second, so most pods have started by then.
const rescueAfter = time.Second

// rescuePause is the wait after kubelet's failed pull before the digest is pinned, because kubelet forgets a pod later
// then. Of pod manifests that were set aside at once, kubelet started 8 of 17 only 10 to 15 s later; after another
// second, none of 8.
const rescuePause = time.Second

// registryTimeout limits the answer of a registry while a pod is down.
const registryTimeout = 2 * time.Second

// pullBackoffBegins is when kubelet is in its pull back-off: it has asked the registry once, and asks again after 10 to
// 15 s.
const pullBackoffBegins = 4 * time.Second

// lateBackoffBegins is the same for a pod that did not go down in time: kubelet delays the new
// pod by 10 to 15 s.
const lateBackoffBegins = 16 * time.Second

// rescue is the state of the start of a stopped pod. Its registry may go away between stop and start: with pull policy
// Always kubelet asks the registry and backs off. The image is on the node, so the agent pins the pod manifest to its
// digest.
type rescue struct {
	next    time.Duration // time after the stop of the next registry check
	pullErr error         // of the last registry check; nil: it answered
	done    bool
}

// tryRescue pins the pod to its staged digests if it has not started and kubelet will not start it soon. It then
// returns the new expectations for the pod. began is the start of the health check. It does nothing if a.rescue is nil.
func (a *attempt) tryRescue(ctx context.Context, o podObservation, began time.Time) []plan.Expectation {
	r := a.rescue
	if r == nil || r.done || a.step.Apply.PullFirst || o.started || ctx.Err() != nil || a.isAnswered() {
		return nil
	}
	waited := time.Since(began).Round(healthInterval / 2) // observations are not exactly periodic
	if waited < r.next {
		return nil
	}
	r.next *= 2
	why := "not started " + waited.Round(time.Second).String() + " after its stop"
	if r.pullErr != nil {
		why = "registry does not answer: " + r.pullErr.Error()
	} else if r.pullErr = a.checkRegistry(ctx); r.pullErr != nil {
		r.next = waited + rescuePause
		return nil
	} else if waited < pullBackoffBegins || a.shutdownTimedOut && waited < lateBackoffBegins {
		return nil
	}
	r.done = true
	a.Log.Warn("pod does not start, naming its staged digest in the pod manifest", "file", a.step.File, "reason", why)
	expect, err := a.pinToStagedDigest(ctx, "during an apply: "+why)
	if err != nil {
		a.Log.Warn("cannot name the staged digest in the pod manifest", "file", a.step.File, "err", err)
		return nil
	}
	return expect
}

// isAnswered reports whether the local registry answers all of kubelet's pulls.
func (a *attempt) isAnswered() bool {
	return !slices.ContainsFunc(a.step.Apply.Expect, func(e plan.Expectation) bool {
		return !e.OnNode && answersPull(a.LocalRegistry, e) == localregistry.Off
	})
}

// checkRegistry checks each tag that kubelet pulls and the local registry does not answer.
func (a *attempt) checkRegistry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	for _, e := range a.step.Apply.Expect {
		if e.OnNode || answersPull(a.LocalRegistry, e) != localregistry.Off {
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
	if err := a.Provide(ctx, o); err != nil {
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

// stagedOverride returns an override that pins the releases of the step to their digests.
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
			return record.PinnedImage{} // written by a person
		}
		return at
	})
	o.From, o.Broken = digest.FromBytes(now), a.step.Apply.Broken
	return o, err
}

// stepTo returns the step from the current pod manifest to an override.
func (a *attempt) stepTo(ctx context.Context, o record.Override, now []byte) (plan.Step, error) {
	inv, err := a.inventory(ctx)
	if err != nil {
		return plan.Step{}, fmt.Errorf("containers: %w", err)
	}
	return plan.StepTo(o, node.PodFile{Name: a.step.File, Data: now}, a.step.Ours,
		inv.ByPod(a.step.Apply.Siblings), a.step.Apply.Siblings)
}

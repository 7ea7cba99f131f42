// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"

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

// rescueAnyway is when a registry that answers again helps nobody any more: kubelet
// has asked it once while it was away, and asks again after 10 to 15 s.
const rescueAnyway = 4 * time.Second

// rescueLast is the same where kubelet met the old pod, and lets the new one wait for
// 10 to 15 s by itself.
const rescueLast = 16 * time.Second

// rescue brings up a pod whose registry went away between its stop and its start.
// Pull policy Always makes the registry part of the start, and kubelet waits ever
// longer between two tries; the image is on the node, so it is named by its digest.
type rescue struct {
	agent *Agent
	step  Step
	next  time.Duration // after its stop, when the registry is asked
	lost  string        // why the registry was away when it was asked; empty: it was not
	done  bool
}

// look is told what the proof sees, and helps if nothing else does: then it returns
// what is to be expected from then on.
func (r *rescue) look(ctx context.Context, is sight, since time.Time) []Expectation {
	if r == nil || r.done || r.step.Apply.PullFirst || is.started || ctx.Err() != nil {
		return nil
	}
	waited := time.Since(since).Round(proofInterval / 2) // a look comes a little early, or late
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
	} else if waited < rescueAnyway || r.agent.slow && waited < rescueLast {
		return nil
	}
	r.done = true
	a := r.agent
	a.Log.Warn("pod does not start, its staged digest is named", "cycle", a.cycle, "file", r.step.File, "reason", why)
	expect, err := r.carry(ctx, "in the middle of an apply: "+why)
	if err != nil {
		a.Log.Warn("staged digest not named", "cycle", a.cycle, "file", r.step.File, "err", err)
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
		if _, err := r.agent.resolve(ctx, e.Ref); err != nil {
			return err
		}
	}
	return nil
}

// carry names the digests of the whole pod: the other containers need a registry
// as well once the pod manifest is another. What is cut short goes on as a rolling
// back.
func (r *rescue) carry(ctx context.Context, reason string) ([]Expectation, error) {
	a, file := r.agent, r.step.File
	now, err := a.left(ctx, r.step)
	if err != nil {
		return nil, err
	}
	before, text := a.record.Overrides[file], now
	if r.step.Data != nil {
		text = r.step.Data // it may not be written yet
	}
	was, err := before.undone(PodFile{Name: file, Data: text})
	if err != nil {
		return nil, err
	}
	o, err := pin(was.Data, reason, a.Now(), func(img manifests.Image) Overridden {
		return r.step.Apply.Ahead[placeOf(img)]
	})
	if err != nil {
		return nil, err
	}
	if err := a.provideAll(ctx, o); err != nil {
		return nil, err
	}
	o.From = digest.FromBytes(now)
	a.record.override(file, o)
	var s Step
	if err = a.save(ctx); err == nil {
		s, err = a.planBack(ctx, file)
	}
	if err == nil {
		err = a.act(ctx, s)
	}
	switch {
	case ctx.Err() != nil:
		return nil, err
	case err != nil:
		a.record.override(file, before)
		if before.Data == "" && len(before.Images) == 0 {
			delete(a.record.Overrides, file)
		}
	default:
		o.Pending = false
		a.record.override(file, o)
	}
	return s.Apply.Expect, errors.Join(err, a.save(ctx))
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/kubic-project/image-update-agent/manifests"
)

// rescueAfter is how long a stopped pod may take to start before its registry is
// asked whether it is still there: kubelet looks once a second, and starts what is
// on the node within that.
const rescueAfter = 2 * time.Second

// rescueAnyway is when a registry that answers again helps nobody any more: kubelet
// has asked it once while it was away, and asks again after 10 to 15 s.
const rescueAnyway = 5 * time.Second

// rescue brings up a pod whose registry went away between its stop and its start.
// Pull policy Always makes the registry part of the start, and kubelet waits ever
// longer between two tries; the image is on the node, so it is named by its digest.
type rescue struct {
	agent *Agent
	step  Step
	asked time.Time
	done  bool
}

// look is told what the proof sees, and helps if nothing else does.
func (r *rescue) look(ctx context.Context, is sight, since time.Time) {
	waited := time.Since(since)
	if r == nil || r.done || is.started || ctx.Err() != nil || min(waited, time.Since(r.asked)) < rescueAfter {
		return
	}
	r.asked = time.Now()
	why := "not started " + waited.Round(time.Second).String() + " after its stop"
	if err := r.away(ctx); err != nil {
		why = "registry away: " + err.Error()
	} else if waited < rescueAnyway {
		return
	}
	r.done = true
	a := r.agent
	a.Log.Warn("pod does not start, its staged digest is named", "cycle", a.cycle, "file", r.step.File, "reason", why)
	if err := r.carry(ctx, "in the middle of an apply: "+why); err != nil {
		a.Log.Warn("staged digest not named", "cycle", a.cycle, "file", r.step.File, "err", err)
	}
}

// away is why what kubelet pulls cannot be had; nil: it can.
func (r *rescue) away(ctx context.Context) error {
	for _, e := range r.step.Apply.Expect {
		if e.OnNode {
			continue
		}
		if _, err := r.agent.Source.Resolve(ctx, e.Ref); err != nil {
			return err
		}
	}
	return nil
}

func (r *rescue) carry(ctx context.Context, reason string) error {
	a, s := r.agent, r.step
	text := s.Data
	if text == nil {
		text = s.Was.Data
	}
	o, err := pin(text, reason, a.Now(), func(img manifests.Image) (pinned, bool) {
		for _, e := range s.Apply.Expect {
			if e.Container == img.Container && e.Init == (img.Kind == manifests.KindInit) {
				return pinned{Pin: Pin{e.Ref.Repository, e.Digest}, config: e.Config, tag: e.Name}, true
			}
		}
		return pinned{}, false
	})
	if err != nil {
		return err
	}
	for _, at := range o.Images {
		if err := a.provide(ctx, at); err != nil {
			return err
		}
	}
	o.Pending = false
	a.record.override(s.File, o)
	if err := a.save(ctx); err != nil {
		return err
	}
	now, err := a.inventory(ctx)
	if err != nil {
		return err
	}
	file := find(now.PodManifests, s.File)
	if file == nil {
		return ErrConflict
	}
	s.Was, s.Data, s.Apply.Aside = *file, []byte(o.Data), true
	return a.act(ctx, s)
}

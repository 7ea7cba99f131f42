// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// proofInterval is how often CRI is asked whether the pod has come up: often
// enough for a person who waits, and nothing against kubelet's own relist each
// second.
const proofInterval = 500 * time.Millisecond

// prove waits until CRI shows each container on its digest, and it stays so for
// the settle time without a restart: a bad image may well come up, and fall. What
// falls begins anew, until the deadline. help looks after a pod that does not
// start; nil: nobody does.
func (r *restart) prove(ctx context.Context, help *rescue) error {
	p := r.step.Apply
	limit := r.Policy.ApplyTimeout + r.Policy.Settle
	tick := time.NewTicker(proofInterval)
	defer tick.Stop()
	v := proofHistory{began: time.Now(), since: time.Now()}
	for {
		// Not under the deadline: a look that it cut short would tell nothing.
		is, err := r.observe(ctx, p)
		if ctx.Err() != nil {
			return fmt.Errorf("pod %s: %w", p.Pod, ctx.Err())
		}
		v.see(is, err)
		switch {
		case err != nil:
		case is.moved != "" && (!is.before || r.step.Do == plan.StepProve): // which has put nothing back
			return r.tagMoved("%s", is.moved)
		case is.missing == "" && time.Since(v.since) >= r.Policy.Settle:
			r.unchecked(is.unchecked)
			r.up = v.since
			return nil
		case v.loops() != "":
			return &release.NotProved{Reason: fmt.Sprintf("pod %s: %s", p.Pod, v.loops())}
		default:
			if rescued := help.look(ctx, is, v.began); rescued != nil {
				p.Expect = rescued
			}
		}
		r.Progress.Report(status.Progress{Reference: p.Pod, Phase: phaseOf(is)})
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		switch {
		case time.Since(v.began) < limit:
		case is.moved != "":
			return r.tagMoved("%s", is.moved)
		default:
			return unproved(p.Pod, r.Policy.ApplyTimeout, is, v.fell, err)
		}
	}
}

// proofHistory is what a proof has seen.
type proofHistory struct {
	began time.Time
	since time.Time      // the pod has been as it is now
	was   podObservation // the last one
	fell  int            // how often it was all right, and was so no more
	ends  []ending
}

// ending is a container that has ended and should not have, and what it lacks for that.
type ending struct{ container, id, why string }

// endsTooOften is how often a container ends until its pod is given up before the
// deadline. kubelet starts it anew at once, then after pauses of 10, 20, 40 s: so it has
// had more than a minute to find what it waits for. To wait on would only prolong the
// time that the pod is down.
const endsTooOften = 5

// loops tells of a container that ends again and again; none does: "".
func (v *proofHistory) loops() string {
	count := map[string]int{}
	for _, e := range v.ends {
		if count[e.container]++; count[e.container] == endsTooOften {
			return fmt.Sprintf("%s has ended %d times: %s", e.container, endsTooOften, e.why)
		}
	}
	return ""
}

func (v *proofHistory) see(is podObservation, err error) {
	if err != nil {
		v.since = time.Now() // nobody knows what was missed
		return
	}
	for _, e := range is.ended {
		if !slices.Contains(v.ends, e) {
			v.ends = append(v.ends, e)
		}
	}
	if is.missing != "" || is.starts != v.was.starts {
		v.since = time.Now()
		if v.was.starts != "" && v.was.missing == "" {
			v.fell++
		}
	}
	v.was = is
}

func phaseOf(s podObservation) string {
	if s.missing == "" && s.starts != "" {
		return status.PhaseProving
	}
	return status.PhaseWaiting
}

// unproved says what the proof waited for when its time was over.
func unproved(pod string, after time.Duration, last podObservation, fell int, err error) error {
	why := last.missing
	switch {
	case err != nil:
		why = err.Error()
	case why == "" && fell == 0:
		why = "it came up too late to be proved"
	case why == "":
		why = fmt.Sprintf("it does not stay up (it fell %d times)", fell)
	}
	return &release.NotProved{Reason: fmt.Sprintf("pod %s: not running after %s: %s", pod, after, why), Unseen: err != nil}
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// observeInterval is how often the node is observed between polls: it costs no
// request, notices what kubelet or a person did, and sets the grain again
// after somebody rewrote the file. Salt refreshes grains every ten minutes.
const observeInterval = 10 * time.Minute

// firstInterval is what the first poll for an image is spread over: short for the
// person who has just installed the agent or the pod, long for a registry whose
// thousand nodes were given it together.
const firstInterval = 10 * time.Minute

// retryPause is the least time between two retries, for nodes that cannot even
// be observed: they never come to asking.
const retryPause = time.Minute

// timetable decides when the next poll and the next observation are.
type timetable struct {
	clock     func() time.Time
	policy    policy.Policy
	interval  time.Duration // of polls; 0: polling is off
	machineID string

	slot          time.Time // the next poll of everything; zero: polling is off
	first         time.Time // the poll for what was never asked; zero: there is no such thing
	observation   time.Time // the next observation; zero: observeInterval after the cycle that runs
	noRetryBefore time.Time // no retry before
}

// now is the wall clock alone: with the monotonic one in it, a time could not be
// seen to be before another when the clock was set back.
func (t *timetable) now() time.Time { return t.clock().Round(0) }

// nextSlot finds the next slot after now.
func (t *timetable) nextSlot(now time.Time) { t.slot = policy.NextSlot(now, t.interval, t.machineID) }

// clockWasSet begins anew after the clock was set back to now.
func (t *timetable) clockWasSet(now time.Time) {
	t.nextSlot(now)
	t.observation, t.first, t.noRetryBefore = now, time.Time{}, time.Time{}
}

// NextPoll is when anything is asked next. What was never asked for is asked for
// soon, at a moment of the node's own: a new node waits for it, or a new pod.
func (t *timetable) NextPoll(retries []time.Time, unasked bool) time.Time {
	switch {
	case !unasked:
		t.first = time.Time{}
	case t.first.IsZero():
		t.first = policy.NextSlot(t.now(), min(t.interval, firstInterval), t.machineID)
	}
	return t.due(retries)
}

// due is when anything is asked next: at the slot, or before it for what was
// never asked, or where sources have failed, at the earliest retry. Without an
// interval, never.
func (t *timetable) due(retries []time.Time) time.Time {
	if !t.first.IsZero() {
		retries = append(retries, t.first)
	}
	for n, r := range retries {
		if r.Before(t.noRetryBefore) {
			retries[n] = t.noRetryBefore
		}
	}
	return policy.Earliest(t.slot, retries)
}

// poll is what a cycle asks now; false: the clock wants no cycle yet.
func (t *timetable) poll(now time.Time, retries []time.Time) (source.Poll, bool) {
	switch {
	case !t.slot.IsZero() && !now.Before(t.slot):
		t.nextSlot(now)
		return source.PollDue, true
	case !t.slot.IsZero() && !now.Before(t.due(retries)):
		return source.PollFailed, true
	}
	return source.PollNone, !now.Before(t.observation)
}

// NextObservation decides when the node is observed next if no event, poll or person
// causes a cycle before. s is the node as it is now.
func (t *timetable) NextObservation(s status.Status) time.Time {
	if t.observation.IsZero() {
		t.observation = t.now().Add(observeInterval)
	}
	t.observation = sooner(t.beforeWindow(t.observation), t.now(), s)
	return t.observation
}

// beforeWindow is the next observation, earlier where a maintenance window opens before
// it.
func (t *timetable) beforeWindow(observation time.Time) time.Time {
	if !t.policy.Auto {
		return observation // the windows are for that mode alone
	}
	if open, change := t.policy.IsWindowOpen(t.now()); !open && change.Before(observation) {
		return change
	}
	return observation
}

// sooner is the next observation, earlier where something does not run: the pauses grow
// with the time since it ended, as kubelet's own do. What comes back is told by an
// event; this is for what kubelet says, which nobody announces.
func sooner(observation, now time.Time, s status.Status) time.Time {
	const leastPause = 2 * time.Second
	for _, i := range s.Images {
		if i.Down == nil {
			continue
		}
		observation = policy.Earlier(observation, now.Add(max(now.Sub(i.Down.Since).Abs()/2, leastPause)))
		if end := i.Down.Since.Add(plan.StartTimeout); i.Down.Starting && end.After(now) {
			observation = policy.Earlier(observation, end)
		}
	}
	return observation
}

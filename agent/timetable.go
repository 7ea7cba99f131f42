// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// observeInterval is the time between observations outside polls. An observation makes no request, and sets the grain
// again if its file was rewritten.
const observeInterval = 10 * time.Minute

// firstInterval spreads the first poll of an image: soon for a person, spread for a registry with a thousand nodes.
const firstInterval = 10 * time.Minute

// retryPause is the minimum time between retries.
const retryPause = time.Minute

// timetable decides when to poll and to observe.
type timetable struct {
	clock     func() time.Time
	policy    policy.Policy
	interval  time.Duration // of polls; 0: none
	machineID string

	slot          time.Time // the next poll of everything; zero: none
	first         time.Time // the first poll of new tags; zero: none
	observation   time.Time // zero: observeInterval after the running cycle
	noRetryBefore time.Time
	blindSince    time.Time // since when the node cannot be observed; zero: it can
}

// now returns the time without its monotonic clock, to notice that the clock was set back.
func (t *timetable) now() time.Time { return t.clock().Round(0) }

// nextSlot sets the next slot after now.
func (t *timetable) nextSlot(now time.Time) { t.slot = policy.NextSlot(now, t.interval, t.machineID) }

// repeatSlot makes the poll of everything due again soon; later, the longer the node cannot be observed.
func (t *timetable) repeatSlot() {
	again := retryPause
	if !t.blindSince.IsZero() {
		again = min(max(pause(t.blindSince, t.now()), again), observeInterval)
	}
	if !t.slot.IsZero() {
		t.slot = policy.Earlier(t.slot, t.now().Add(again))
	}
}

// setInterval sets the interval and the slot. A slot that comes before the next one of the new interval stays: its poll
// may be due already.
func (t *timetable) setInterval(interval time.Duration) {
	was := t.slot
	t.interval = interval
	if t.nextSlot(t.now()); !t.slot.IsZero() && !was.IsZero() {
		t.slot = policy.Earlier(t.slot, was)
	}
}

// clockWasSet resets the timetable after the clock was set back to now.
func (t *timetable) clockWasSet(now time.Time) {
	t.nextSlot(now)
	t.observation, t.first, t.noRetryBefore, t.blindSince = now, time.Time{}, time.Time{}, time.Time{}
}

// NextPoll returns when the next poll begins. Tags that were never polled are polled soon, at a time that differs by
// node.
func (t *timetable) NextPoll(retries []time.Time, unasked bool) time.Time {
	switch {
	case !unasked:
		t.first = time.Time{}
	case t.first.IsZero():
		t.first = policy.NextSlot(t.now(), min(t.interval, firstInterval), t.machineID)
	}
	return t.due(retries)
}

// due returns the next poll: the slot, or earlier for new tags and retries; zero: never.
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

// poll returns the questions that are due now; false: no cycle is due.
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

// NextObservation returns when to observe the node next; s is its current status.
func (t *timetable) NextObservation(s status.Status) time.Time {
	if t.observation.IsZero() {
		t.observation = t.now().Add(observeInterval)
	}
	if open, change := t.policy.IsWindowOpen(t.now()); t.policy.Auto && !open && change.Before(t.observation) {
		t.observation = change // when a window opens
	}
	if s.Lock != nil && s.Lock.RetryAt.After(t.now()) {
		t.observation = policy.Earlier(t.observation, s.Lock.RetryAt)
	}
	switch {
	case !s.HasReason(status.KindNode):
		t.blindSince = time.Time{}
	case t.blindSince.IsZero():
		t.blindSince = t.now()
	}
	if !t.blindSince.IsZero() { // no event tells when the node can be observed again
		t.observation = policy.Earlier(t.observation, t.now().Add(pause(t.blindSince, t.now())))
	}
	t.observation = sooner(t.observation, t.now(), s)
	return t.observation
}

// pause returns the pause between observations of a failure. It grows with its age, as kubelet's back-off does.
func pause(since, now time.Time) time.Duration { return max(now.Sub(since).Abs()/2, 2*time.Second) }

// sooner returns an earlier time while containers are down. Events report restarts; only observations show kubelet's
// reasons.
func sooner(observation, now time.Time, s status.Status) time.Time {
	for _, i := range s.Images {
		if i.Down == nil {
			continue
		}
		observation = policy.Earlier(observation, now.Add(pause(i.Down.Since, now)))
		if end := i.Down.Since.Add(follow.StartTimeout); i.Down.Starting && end.After(now) {
			observation = policy.Earlier(observation, end)
		}
	}
	return observation
}

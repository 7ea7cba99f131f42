// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Clock is the node's clock as the cycles saw it. A clock that is wrong for some cycles must not end a hold or a
// denial, nor prolong an approval, so a time has passed only when the clock and Believed have passed it.
type Clock struct {
	Seen time.Time `json:"seen,omitzero"` // by the last cycle
	// Believed advances with the clock, except when it jumps.
	Believed time.Time `json:"believed,omitzero"`
	// Jumped is Believed at the last jump of the clock; zero: the clock agrees with Believed.
	Jumped time.Time `json:"jumped,omitzero"`
}

const (
	// maxStep is the longest believed time between two cycles. A node that was off for longer keeps its holds longer.
	maxStep = 24 * time.Hour
	// slack is how far a correct clock is set back, as after a boot.
	slack = time.Minute
	// jumpAge is how long a clock must agree with itself after a jump, until it is believed.
	jumpAge = 7 * 24 * time.Hour
	// clockRounding limits how often the clock alone changes the record on disk.
	clockRounding = 6 * time.Hour
)

// Observe notes the clock at the start of a cycle. A clock that was set back makes the age of approvals unknown, and
// voids them.
func (r *Record) Observe(now time.Time) {
	c, now := &r.Clock, outside.Time(now.Round(0).UTC())
	if c.Believed.IsZero() { // a new record, or one of an agent without the field
		if c.Believed = later(r.LastCheck, r.Since); c.Believed.IsZero() {
			c.Believed = now
		}
		c.Seen = c.Believed
	}
	step := now.Sub(c.Seen)
	c.Seen = now
	switch {
	case step < -slack:
		clear(r.Approved)
		c.Jumped = c.Believed
	case step > maxStep:
		c.Jumped = c.Believed
	default:
		c.Believed = c.Believed.Add(max(step, 0))
	}
	if now.Sub(c.Believed).Abs() <= maxStep || !c.Jumped.IsZero() && c.Believed.Sub(c.Jumped) >= jumpAge {
		c.Believed, c.Jumped = now, time.Time{}
	}
}

// HasPassed reports whether a time has passed for certain.
func (r *Record) HasPassed(t, now time.Time) bool { return !r.certainly(now).Before(t) }

// certainly returns a time that has passed.
func (r *Record) certainly(now time.Time) time.Time {
	if b := r.Clock.Believed; !b.IsZero() && b.Before(now) {
		return b
	}
	return now
}

// IsHeld reports whether a hold has not ended for certain.
func (r *Record) IsHeld(h PersonHold, now time.Time) bool {
	return h.Until.IsZero() || !r.HasPassed(h.Until, now)
}

// rounded returns the clock for the disk.
func (c Clock) rounded() Clock {
	return Clock{c.Seen.Truncate(clockRounding), c.Believed.Truncate(clockRounding), c.Jumped.Truncate(clockRounding)}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

const day = 24 * time.Hour

// kept is a record with a hold of a day, an approval and a denial, and the cycles of a node.
type kept struct {
	record.Record
	true time.Time     // the time of the world
	off  time.Duration // by how much the clock is wrong
}

func newKept() *kept {
	k := &kept{true: now}
	k.cycle()
	k.Holds.Set("*", record.PersonHold{At: now, Until: now.Add(day)})
	k.Denied.Set(release.Key(velum, two), record.Denial{At: now, PodManifest: file})
	k.Approved.Set(file, record.Approval{At: now, Offer: "offer"})
	return k
}

// cycle is one on the node.
func (k *kept) cycle() {
	at := k.true.Add(k.off)
	k.Observe(at)
	k.Retain(record.InUse{Pods: map[string]record.PodInUse{file: {Offer: "offer"}}}, at)
}

// pass lets time pass, with a cycle in each hour.
func (k *kept) pass(d time.Duration) {
	for ; d > 0; d -= time.Hour {
		k.true = k.true.Add(time.Hour)
		k.cycle()
	}
}

// A clock that is wrong for a cycle, or for hours, ends nothing, and what has an end ends at its time by the correct
// clock.
func TestWrongClockEndsNothing(t *testing.T) {
	t.Parallel()
	for title, off := range map[string]time.Duration{
		"1970": -now.Sub(time.Unix(0, 0)), "91 days ahead": 91 * day, "a year ahead": 365 * day, "91 days back": -91 * day,
		"two days ahead": 2 * day, "far ahead": 200 * 365 * day,
	} {
		for _, lasts := range []time.Duration{0, 12 * time.Hour} {
			k := newKept()
			k.off = off
			k.cycle()
			k.pass(lasts)
			assert.Len(t, k.Holds, 1, title)
			assert.Len(t, k.Denied, 1, title)
			assert.True(t, k.IsHeld(k.Holds["*"], k.true.Add(k.off)), title)
			assert.Empty(t, k.Approved, "%s: its age is unknown", title)
			k.off = 0
			k.cycle()
			assert.Len(t, k.Holds, 1, title)
			assert.False(t, k.Denied[release.Key(velum, two)].Named.After(k.true), title)
			k.pass(day)
			assert.Empty(t, k.Holds, title)
			assert.Len(t, k.Denied, 1, title)
			k.pass(91 * day)
			assert.Empty(t, k.Denied, title)
		}
	}
}

// A denied release that is named under a wrong clock is denied for as long as under a correct one.
func TestDenialIsNotAgedByACycleIn1970(t *testing.T) {
	t.Parallel()
	k := newKept()
	k.pass(80 * day)
	k.off = -now.Sub(time.Unix(0, 0))
	at := k.true.Add(k.off)
	k.Observe(at)
	k.Retain(record.InUse{Releases: map[string]bool{release.Key(velum, two): true}}, at)
	k.off = 0
	k.pass(80 * day)
	assert.Len(t, k.Denied, 1)
}

// A node that was off keeps a hold for as long as it was off, and for at most a week; a new clock is believed then.
func TestClockIsBelievedAfterAWeek(t *testing.T) {
	t.Parallel()
	k := newKept()
	k.true = k.true.Add(100 * day)
	k.pass(23 * time.Hour)
	assert.Len(t, k.Holds, 1)
	k.pass(day)
	assert.Empty(t, k.Holds, "a day has passed on this node")
	k.Holds.Set("*", record.PersonHold{At: k.true, Until: k.true.Add(day)})
	k.pass(7 * day)
	assert.Empty(t, k.Holds)
	assert.Empty(t, k.Denied)
	assert.Zero(t, k.Clock.Jumped)
}

// Restarts lose no more than the rounding of the clock on disk.
func TestClockOnDiskIsRounded(t *testing.T) {
	t.Parallel()
	d := &disk{}
	s := record.Store{Recorder: d}
	s.Record.Observe(now)
	assert.NoError(t, s.Save(t.Context()))
	first := d.saved.Clock
	s.Record.Observe(now.Add(time.Minute))
	assert.NoError(t, s.Save(t.Context()))
	assert.Equal(t, first, d.saved.Clock, "the disk is spared")
	s.Record.Approved.Set(file, record.Approval{At: now})
	assert.NoError(t, s.Save(t.Context()))
	assert.Equal(t, now.Add(time.Minute).UTC(), d.saved.Clock.Seen)
}

// Whatever the clock says in between, nothing ends early, and no approval is valid for longer than a day.
func TestHistoriesOfClocks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := newKept()
		for range rapid.IntRange(1, 40).Draw(t, "cycles") {
			k.true = k.true.Add(time.Duration(rapid.IntRange(1, 180).Draw(t, "minutes")) * time.Minute)
			if rapid.Bool().Draw(t, "the clock is set") {
				k.off = time.Duration(rapid.SampledFrom([]int{0, 0, -20_000, -400, -2, 2, 30, 91, 365, 4000}).Draw(t, "days")) * day
			}
			k.cycle()
			age, clock := k.true.Sub(now), k.true.Add(k.off)
			if age < day {
				assert.True(t, k.IsHeld(k.Holds["*"], clock))
				assert.Len(t, k.Holds, 1)
			}
			assert.Len(t, k.Denied, 1)
			if age > record.ApprovalAge+time.Hour {
				assert.Empty(t, k.Approved)
			}
		}
		k.off = 0
		k.pass(2 * day)
		assert.Empty(t, k.Holds)
	})
}

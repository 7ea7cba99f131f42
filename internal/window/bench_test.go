// SPDX-License-Identifier: Apache-2.0

package window

import (
	"testing"
	"time"
)

// BenchmarkOpen measures schedules as people write them, and the largest one that never closes, which is followed for a
// year.
func BenchmarkOpen(b *testing.B) {
	weekend := Window{[]time.Weekday{time.Saturday}, 2 * time.Hour, 4 * time.Hour, zone(b, "Europe/Berlin")}
	var most Schedule
	for i := range 64 {
		most = append(most, Window{Start: time.Duration(i) * time.Minute, Length: 24 * time.Hour, Zone: time.UTC})
	}
	for name, s := range map[string]Schedule{"weekend": {weekend}, "most": most} {
		b.Run(name, func(b *testing.B) {
			now := at(b, "2026-11-21T02:00:00Z")
			for b.Loop() {
				s.Open(now)
			}
		})
	}
}

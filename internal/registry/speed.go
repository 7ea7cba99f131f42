// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"time"
)

// speedTime is what a layer's speed is measured over.
const speedTime = time.Minute

// slowError ends a layer that comes so slowly that it would never be there.
type slowError struct{ least int64 }

func (e *slowError) Error() string {
	return fmt.Sprintf("body: less than %d bytes a second over %s (staging.leastSpeed)", e.least, speedTime)
}

// Timeout is for who asks an error so.
func (e *slowError) Timeout() bool { return true }

// Temporary makes it a net.Error.
func (e *slowError) Temporary() bool { return false }

// speedometer measures how fast a layer comes, in the time in which somebody waits for
// it: who reads slowly is a slow disk, or a limited bandwidth.
type speedometer struct {
	least  int64 // bytes a second; 0: as slow as it likes
	waited time.Duration
	came   int64
}

// read takes what has come after a wait; an error: it was too slow over speedTime.
func (s *speedometer) read(wait time.Duration, n int) error {
	s.waited += wait
	s.came += int64(n)
	if s.waited < speedTime {
		return nil
	}
	slow := float64(s.came) < float64(s.least)*s.waited.Seconds()
	s.waited, s.came = 0, 0
	if slow {
		return &slowError{s.least}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

const (
	// retryFile is in the state directory while a hook has failed.
	retryFile = "hook-retry.json"
	// Each failure doubles the time until the next attempt.
	firstRetry = time.Minute
	maxRetry   = time.Hour
	maxRetries = 16 // limit of the count
)

// retry is when a run is requested without a change.
type retry struct {
	Failures int       `json:"failures"` // consecutive ones
	After    time.Time `json:"after"`
}

// next returns the retry after one more failure.
func (r retry) next(now time.Time) retry {
	wait := maxRetry
	if r.Failures >= 0 && r.Failures < 6 {
		wait = firstRetry << r.Failures
	}
	return retry{Failures: min(max(r.Failures, 0)+1, maxRetries), After: now.Add(wait)}
}

// isDue reports whether it is time; a clock that was set back does not postpone it.
func (r retry) isDue(now time.Time) bool {
	return r.Failures > 0 && (!now.Before(r.After) || r.After.Sub(now) > maxRetry)
}

// Ended records the end of a run.
func (d *Outbox) Ended(failed bool, now time.Time) error {
	if !failed {
		err := os.Remove(filepath.Join(d.stateDir, retryFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("hook: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(d.retry().next(now.UTC()))
	if err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	dir, err := open(d.stateDir)
	if err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if _, err := dir.Write(retryFile, append(data, '\n'), nodefile.Options{Mode: 0o600}); err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	return nil
}

// again requests a run after a failure when it is time.
func (d *Outbox) again(now time.Time) error {
	if !d.retry().isDue(now) {
		return nil
	}
	return d.due()
}

// retry returns the zero value if there is no file, or an unreadable one.
func (d *Outbox) retry() (r retry) {
	text, err := nodefile.Read(filepath.Join(d.stateDir, retryFile), maxSecret)
	if err != nil || json.Unmarshal(text, &r) != nil {
		return retry{}
	}
	return r
}

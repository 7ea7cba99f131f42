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

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

const (
	// retryFile is in the state directory while a hook has failed.
	retryFile = "hook-retry.json"
	// Each failure doubles the time until the next attempt.
	firstRetry = time.Minute
	maxRetry   = time.Hour
	maxRetries = 16 // limit of the count
	// maxAsked limits the wait that a server asks for with Retry-After.
	maxAsked = 24 * time.Hour
	// maxRetryFile limits the file: nine consumers have 1 kB.
	maxRetryFile = 16 << 10
)

// retry is when a consumer that failed is tried again without a change. A webhook gets no request before, and then all
// changes in one.
type retry struct {
	Failures int       `json:"failures"` // consecutive ones
	After    time.Time `json:"after"`
}

// next returns the retry after one more failure. asked is the time that the server asked for; zero: none.
func (r retry) next(now, asked time.Time) retry {
	wait := maxRetry
	if r.Failures >= 0 && r.Failures < 6 {
		wait = firstRetry << r.Failures
	}
	next := retry{Failures: min(max(r.Failures, 0)+1, maxRetries), After: now.Add(wait)}
	if asked.After(next.After) {
		next.After = asked
	}
	return next
}

// isWaiting reports whether it is too early; a clock that was set back does not postpone it.
func (r retry) isWaiting(now time.Time) bool {
	return r.Failures > 0 && now.Before(r.After) && r.After.Sub(now) <= maxAsked
}

// isDue reports whether it is time.
func (r retry) isDue(now time.Time) bool { return r.Failures > 0 && !r.isWaiting(now) }

// retries are those of the consumers that failed, by name.
type retries struct {
	Of map[string]retry `json:"consumers"`
}

// wasAsked is the error of a server that asked to wait.
type wasAsked struct {
	until time.Time
	err   error
}

func (w *wasAsked) Error() string {
	return fmt.Sprintf("%v: the server asks to wait until %s", w.err, w.until.UTC().Format(time.RFC3339))
}

func (w *wasAsked) Unwrap() error { return w.err }

// Ended records the end of a run: why each consumer failed, nil if it succeeded. What is not named, because it was not
// tried, keeps its wait.
func (d *Outbox) Ended(results map[string]error, now time.Time) error {
	kept := d.retries()
	next := retries{map[string]retry{}}
	for _, name := range append([]string{Programs}, d.consumers...) {
		err, tried := results[name]
		before, failed := kept.Of[name]
		switch {
		case !tried && failed:
			next.Of[name] = before
		case err != nil:
			var asked time.Time
			if w, is := errors.AsType[*wasAsked](err); is {
				asked = w.until
			}
			next.Of[name] = before.next(now.UTC(), asked.UTC())
		}
	}
	if len(next.Of) == 0 {
		err := os.Remove(filepath.Join(d.stateDir, retryFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("hook: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(next)
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
	for _, r := range d.retries().Of {
		if r.isDue(now) {
			return d.due()
		}
	}
	return nil
}

// retries returns the zero value if there is no file, or an unreadable one.
func (d *Outbox) retries() (r retries) {
	text, err := nodefile.Read(filepath.Join(d.stateDir, retryFile), maxRetryFile)
	if err != nil || json.Unmarshal(text, &r) != nil {
		return retries{}
	}
	return r
}

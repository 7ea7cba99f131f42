// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"
)

// Cause is why a source gave no answer, in one of a few words: what an alarm can be
// raised on. The sentence with the details is the error's.
type Cause string

// The causes.
const (
	CauseTimeout     Cause = "timeout"      // it took too long
	CauseDNS         Cause = "dns"          // the host's name is not known
	CauseRefused     Cause = "refused"      // nobody listens there, or no way leads there
	CauseTLS         Cause = "tls"          // the host could not prove who it is
	CauseAuth        Cause = "auth"         // 401 or 403: no login, or not the right one
	CauseNotFound    Cause = "not found"    // 404
	CauseRateLimited Cause = "rate limited" // 429
	CauseServerError Cause = "server error" // 5xx
	CauseUnasked     Cause = "unasked"      // no request was made: see SourceError
	CauseOther       Cause = "other"
)

// Meter counts what happens, for numbers that only grow. It is called by the loop
// and by the pulls that run side by side, and must not wait. What it is told
// survives a reload: one is handed from agent to agent.
type Meter interface {
	// Turned: the loop has done a cycle.
	Turned()
	// Failed: a poll had no answer for a repository. host is empty where none was
	// reached. It is told once a round for a repository.
	Failed(host string, cause Cause)
	// Staged: a pull has ended. An error that is ErrHeld says not now.
	Staged(err error)
	// Restarted: an apply or a rolling back was carried to its end.
	Restarted(r Restart)
}

// Restart is how an apply or a rolling back has ended.
type Restart struct {
	Back   bool // it was a rolling back
	ByHand bool // a person asked for that; else it followed a failure
	Result Result
	// Took is all of it: the question before, the restart, the proof with its settle
	// time.
	Took time.Duration
	// Up is from the beginning of the restart until the pod was first seen as it
	// should be and stayed so; it is looked at twice a second. Zero where it did not
	// come up, or was not restarted.
	Up time.Duration
}

// stopwatch times one restart.
type stopwatch struct{ began, acted, up time.Time }

func (a *Agent) startWatch() { a.watch = stopwatch{began: time.Now()} }

// countRestart tells how a restart ended. One that was cut short, or that nobody
// could see, has not ended: the next start, or the next cycle, goes on.
func (a *Agent) countRestart(ctx context.Context, r Restart, err error) {
	if a.Meter == nil || err != nil && ctx.Err() != nil || isUnseen(err) {
		return
	}
	switch {
	case waits(err):
		r.Result = ResultHeld
	case err != nil:
		r.Result = ResultFailed
	case r.Back:
		r.Result = ResultBack
	default:
		r.Result = ResultApplied
	}
	r.Took = time.Since(a.watch.began)
	if err == nil && !a.watch.acted.IsZero() {
		r.Up = a.watch.up.Sub(a.watch.acted)
	}
	a.Meter.Restarted(r)
}

// countStaged tells how a pull ended. One that found no room beside another is
// done again when that has ended.
func (a *Agent) countStaged(ctx context.Context, err error) {
	if a.Meter != nil && ctx.Err() == nil && !errors.Is(err, errCrowded) {
		a.Meter.Staged(err)
	}
}

// countFailures tells of the repositories that had no answer. A tag that is not
// there is one here: a pod may follow it.
func (a *Agent) countFailures(ctx context.Context, asked *inquiry) {
	if a.Meter == nil || ctx.Err() != nil {
		return
	}
	told := map[string]bool{}
	for _, q := range asked.questions() {
		err := asked.results[q].err
		if err == nil || told[q.Repository] {
			continue
		}
		told[q.Repository] = true
		host, cause := "", CauseOther
		if se, ok := errors.AsType[*SourceError](err); ok {
			host = se.Host
			if se.Cause != "" {
				cause = se.Cause
			}
		}
		a.Meter.Failed(host, cause)
	}
}

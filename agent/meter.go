// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

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
	FailureMeter
	StagingMeter
	RestartMeter
	// Turned: the loop has done a cycle.
	Turned()
}

// FailureMeter counts polls without an answer.
type FailureMeter interface {
	// Failed: a poll had no answer for a repository. host is empty where none was
	// reached. It is called once a round for a repository.
	Failed(host string, cause Cause)
}

// StagingMeter counts pulls.
type StagingMeter interface {
	// Staged: a pull has ended. An error that is ErrHeld says not now.
	Staged(err error)
}

// RestartMeter counts applies and rollbacks.
type RestartMeter interface {
	// Restarted: an apply or a rollback has ended.
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

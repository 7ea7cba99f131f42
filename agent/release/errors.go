// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"time"
)

// IsWaiting tells an error that says not now from one that says it went wrong.
func IsWaiting(err error) bool { return errors.Is(err, ErrHeld) || errors.Is(err, ErrConflict) }

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

// ErrNotAsked stands in an offer that no poll has answered yet.
var ErrNotAsked = errors.New("not asked yet")

// Refusal is a source's answer as the record keeps it.
type Refusal struct {
	Text  string
	Cause error // ErrNotFound or ErrPlatform
}

func (r *Refusal) Error() string { return r.Text }

func (r *Refusal) Unwrap() error { return r.Cause }

// ErrNotFound: the source answered, and it has no such tag, digest or
// repository. On the very tag a pod follows it is an alarm.
var ErrNotFound = errors.New("not found")

// ErrPlatform: the image exists, but not for this node's platform.
var ErrPlatform = errors.New("not for this platform")

// ErrConflict: somebody else changed a file between our reading and writing
// it. The next cycle plans anew.
var ErrConflict = errors.New("changed by somebody else")

// ErrHeld: writing waits, for a reason that the error names.
var ErrHeld = errors.New("held")

// ErrNoSpace: the disk was full in the middle of a pull. What the pull had
// brought is gone again.
var ErrNoSpace = errors.New("no space left")

// SourceError is an answer of a source that is no answer: which host, which
// code. Adapters wrap it so that status can say why nothing happens.
type SourceError struct {
	Repository string
	Host       string // the host asked last; empty where none was reached
	Mirror     bool
	Status     int       // HTTP status, 0 where there was none
	RetryAt    time.Time // zero, or when the host wants to be asked again
	// Unasked: no request was made, as the host asked to be left alone, has just
	// failed others, or the budget is spent. Err says which.
	Unasked bool
	Cause   Cause // Err in one word; empty: CauseOther
	Err     error
}

// Error names side, host and cause, as in
// "registry.suse.com/caasp/v4/velum: mirror m1:5000: 503 Service Unavailable".
func (e *SourceError) Error() string { return e.Repository + ": " + e.Answer() }

// Answer is Error without the repository: what the host said.
func (e *SourceError) Answer() string {
	side := "upstream"
	if e.Mirror {
		side = "mirror"
	}
	if e.Host == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s %s: %v", side, e.Host, e.Err)
}

// Unwrap gives the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// NotProved is the end of a proof that did not succeed.
type NotProved struct {
	Reason string
	Unseen bool // nobody could look, so nothing is known of the pod
}

func (n *NotProved) Error() string { return n.Reason }

// IsDown reports whether an error is that a pod was seen not to come up.
func IsDown(err error) bool {
	n, is := errors.AsType[*NotProved](err)
	return is && !n.Unseen
}

func IsUnseen(err error) bool {
	n, is := errors.AsType[*NotProved](err)
	return is && n.Unseen
}

var (
	// ErrUnsigned: nobody has signed the release, yet. Build services sign after
	// they have published the tags.
	ErrUnsigned = errors.New("not signed")
	// ErrForged: there are signatures, and none of them is good.
	ErrForged = errors.New("no valid signature")
)

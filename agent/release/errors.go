// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// IsWaiting reports whether an error only means that the operation must wait.
func IsWaiting(err error) bool { return errors.Is(err, ErrHeld) || errors.Is(err, ErrConflict) }

// Cause is why a source did not answer, as a fixed word for alarms and metrics.
type Cause string

// The causes.
const (
	CauseTimeout     Cause = "timeout"      // it took too long
	CauseDNS         Cause = "dns"          // the host name does not resolve
	CauseRefused     Cause = "refused"      // connection refused, or no route to the host
	CauseTLS         Cause = "tls"          // the certificate is not valid
	CauseAuth        Cause = "auth"         // 401 or 403
	CauseNotFound    Cause = "not found"    // 404
	CauseRateLimited Cause = "rate limited" // 429
	CauseServerError Cause = "server error" // 5xx
	CauseNoRegistry  Cause = "no registry"  // it answered with a page for people, such as a login page
	CauseUnasked     Cause = "unasked"      // no request was made: see SourceError
	CauseOther       Cause = "other"
)

// ErrNotAsked: no poll has asked for it yet.
var ErrNotAsked = errors.New("not asked yet")

// RecordedError is an error of a source restored from the record.
type RecordedError struct {
	Text  string
	Cause error // ErrNotFound, ErrPlatform, ErrUnlisted or a SourceError
}

func (r *RecordedError) Error() string { return r.Text }

func (r *RecordedError) Unwrap() error { return r.Cause }

// ErrNotFound: the source has no such tag, digest or repository. For a followed tag it is an alarm.
var ErrNotFound = errors.New("not found")

// ErrPlatform: the image exists, but not for this node's platform.
var ErrPlatform = errors.New("not for this platform")

// ErrNotImage: the source has something else, such as a Helm chart.
var ErrNotImage = errors.New("not an image")

// ErrCatalog: the source answered with a catalog that must not be used. A person must act.
var ErrCatalog = errors.New("catalog refused")

// ErrTornList: a later page of a tag list failed. It says nothing about the repository.
var ErrTornList = errors.New("incomplete list")

// ErrUnlisted: the catalog offers no release of a followed tag.
var ErrUnlisted = errors.New("not in the catalog")

// ErrConflict: a file changed between reading and writing it. The next cycle makes a new plan.
var ErrConflict = errors.New("changed by another program or a person")

// ErrHeld: an operation must wait; the error names the reason.
var ErrHeld = errors.New("held")

// ErrNoSpace: the disk became full during a pull, which was undone.
var ErrNoSpace = errors.New("no space left")

// SourceError is a failed request to a source.
type SourceError struct {
	Repository string
	Host       string // the last host; empty if none was reached
	Mirror     bool
	Status     int       // HTTP status; 0: none
	RetryAt    time.Time // from Retry-After; zero: none
	// Unasked: no request was sent, because of the host's Retry-After, its failures, or a spent budget. Err says which.
	Unasked bool
	// Silent: the host accepted the request and sent no answer in time. containerd before 2.3 also waits for it, and
	// asks no other host.
	Silent bool
	// Answered: the host sent an answer that ends containerd's pull, such as a page, or a redirect that the source does
	// not follow and containerd may. containerd asks no host after it.
	Answered bool
	// Refused: every host that was asked has refused this manifest, as by a policy against vulnerable images, or does not
	// have it. It says nothing about others.
	Refused bool
	Cause   Cause // empty: CauseOther
	Err     error
}

// Error returns, for example, "registry.suse.com/caasp/v4/velum: mirror m1:5000: 503 Service Unavailable".
func (e *SourceError) Error() string { return e.Repository + ": " + e.Answer() }

// Answer returns Error without the repository.
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

// Unwrap returns Err.
func (e *SourceError) Unwrap() error { return e.Err }

// UnhealthyError is a failed health check.
type UnhealthyError struct {
	Reason     string
	Unobserved bool // the pod could not be observed
}

func (n *UnhealthyError) Error() string { return n.Reason }

// UncheckedError says that a pod runs, and that nobody can tell whether its containers work.
type UncheckedError struct {
	Containers []string // with reasons
}

func (u *UncheckedError) Error() string {
	return "running, not checked: " + strings.Join(u.Containers, ", ")
}

// IsDown reports whether an error means that a pod was observed not to come up.
func IsDown(err error) bool {
	n, is := errors.AsType[*UnhealthyError](err)
	return is && !n.Unobserved
}

// IsUnobserved reports whether an error means that a pod could not be observed.
func IsUnobserved(err error) bool {
	n, is := errors.AsType[*UnhealthyError](err)
	return is && n.Unobserved
}

var (
	// ErrUnsigned: the release has no signature. Build services sign after publishing the tags.
	ErrUnsigned = errors.New("not signed")
	// ErrForged: the release has signatures, but none is valid.
	ErrForged = errors.New("no valid signature")
)

// HoldError says that a hold prevented an apply. It is ErrHeld.
type HoldError struct {
	Hold string // its name
	Err  error  // the cause, as observed
}

// Error returns, for example, "held: quorum: etcd member b does not answer".
func (e *HoldError) Error() string { return "held: " + e.Hold + ": " + e.Err.Error() }

// Unwrap returns ErrHeld and Err.
func (e *HoldError) Unwrap() []error { return []error{ErrHeld, e.Err} }

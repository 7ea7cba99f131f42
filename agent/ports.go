// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
)

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

// Source is where releases are learnt.
type Source interface {
	// Resolve asks what a tag names now: one HEAD request where the host allows
	// it. A missing tag is ErrNotFound.
	Resolve(ctx context.Context, ref Reference) (Resolved, error)
	// Tags lists the tags of a repository, unsorted, bounded in number.
	Tags(ctx context.Context, repository string) ([]string, error)
	// Describe fetches what a digest is, for the node's platform: ErrPlatform
	// where there is none, ErrNotFound where the digest has vanished.
	Describe(ctx context.Context, repository string, d digest.Digest) (Build, error)
}

// TagResolver is the part of a Source that an apply needs.
type TagResolver interface {
	// Resolve asks what a tag names now. See Source.
	Resolve(ctx context.Context, ref Reference) (Resolved, error)
}

// Pacer is how fast the hosts may be asked: what must survive a restart, so
// that one never becomes a way around it.
type Pacer interface {
	// Pace is how it stands now.
	Pace() Pace
	// Resume takes up what was kept. Waits that are there already and later stay.
	Resume(p Pace)
}

// Pace is what hosts and the budget of requests leave for later.
type Pace struct {
	// Waits are the hosts that asked to be left alone (429 or 503 with
	// Retry-After), by host[:port].
	Waits map[string]Wait `json:"waits,omitempty"`
	// Budget is what is left to ask with.
	Budget Budget `json:"budget,omitzero"`
}

// Wait is a host's wish to be left alone.
type Wait struct {
	Until  time.Time `json:"until"`
	Status int       `json:"status"` // the HTTP status that it came with
}

// Budget bounds the requests of this node to all registries. It refills evenly
// over the hour.
type Budget struct {
	PerHour int       `json:"perHour"` // 0: there is none
	Left    int       `json:"left"`    // requests, at the time At
	At      time.Time `json:"at,omitzero"`
}

// Inhibitor delays a shutdown of the node.
type Inhibitor interface {
	// Inhibit delays it until release is called, as long as the node allows.
	Inhibit(ctx context.Context, why string) (release func(), err error)
}

// Announcer tells the admin's UI.
type Announcer interface {
	// Announce sets the grain, writing only on change. ErrHeld while another
	// update owns the node.
	Announce(ctx context.Context, a Announcement) error
	// Busy names the grain by which a foreign operation owns the node now, as in
	// update_in_progress; empty for none.
	Busy(ctx context.Context) (grain string, err error)
}

// Preconditions are what the rest of the node has against restarting a pod now.
type Preconditions interface {
	// Holds lists it; none: nothing. What cannot be found out is itself a hold,
	// unless the node has no such thing.
	Holds(ctx context.Context) []Hold
}

// Announcement is what the admin's UI is told.
type Announcement struct {
	State   string
	Reason  string // why a pod did not come up; empty: none has failed
	Updates []AnnouncedUpdate
	// NotAllowed is what is newer, and what the configuration does not allow.
	NotAllowed []NotAllowed
}

// AnnouncedUpdate is one staged image that waits for approval.
type AnnouncedUpdate struct {
	Image  string        `json:"image"` // repository
	Change string        `json:"change"`
	From   string        `json:"from"` // what runs, by its best name; "" where nothing is known to
	To     string        `json:"to"`
	Digest digest.Digest `json:"digest"` // of To
}

// Recorder keeps what cannot be observed again.
type Recorder interface {
	// Load reads the record; an absent one is an empty record.
	Load(ctx context.Context) (Record, error)
	// Save writes it atomically.
	Save(ctx context.Context, r Record) error
	// Publish writes the status for readers that cannot reach the daemon.
	Publish(ctx context.Context, s Status) error
}

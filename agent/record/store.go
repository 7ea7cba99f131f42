// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Pacer limits the rate of requests. Its state is recorded, so that a restart does not
// lift the limits.
type Pacer interface {
	// Pace returns the state.
	Pace() Pace
	// Resume restores a recorded state. Existing later waits stay.
	Resume(p Pace)
	// TryAgain allows one request to each host that waits because it did not answer, or that asked to wait.
	TryAgain()
}

// Pace is the state of the limits for requests to registries.
type Pace struct {
	// Waits are the hosts that answered 429 or 503 with Retry-After, by host[:port].
	Waits  map[string]Wait `json:"waits,omitempty"`
	Budget Budget          `json:"budget,omitzero"`
}

// Wait is the end of a host's Retry-After.
type Wait struct {
	Until  time.Time `json:"until"`
	Status int       `json:"status"` // the HTTP status of the answer
}

// Budget limits the requests of this node to all registries. It refills evenly within an hour.
type Budget struct {
	PerHour   int       `json:"perHour"`   // 0: no limit
	Remaining int       `json:"remaining"` // requests, at At
	At        time.Time `json:"at,omitzero"`
}

// Recorder stores the record and the status.
type Recorder interface {
	// Load reads the record. A missing one is empty.
	Load(ctx context.Context) (Record, error)
	// Save writes the record atomically.
	Save(ctx context.Context, r Record) error
	// Publish writes the status file, for readers without access to the socket.
	Publish(ctx context.Context, s status.Status) error
}

// Store owns the record of a running agent: it loads the record once, and saves it.
type Store struct {
	Record   Record
	Recorder Recorder
	Pacer    Pacer // nil: none
	Log      *slog.Logger

	loaded  bool
	dropped []status.Dropped // entries that could not be saved since the last poll
}

// Load reads the record once.
func (s *Store) Load(ctx context.Context) error {
	if s.loaded {
		return nil
	}
	var err error
	if s.Record, err = s.Recorder.Load(ctx); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	s.Record.New = s.Record.New || s.Record.Version == 0
	s.Record.Version = RecordVersion
	if s.Pacer != nil {
		s.Pacer.Resume(s.Record.Pace)
	}
	s.loaded = true
	return nil
}

// IsLoaded reports whether the record is known.
func (s *Store) IsLoaded() bool { return s.loaded }

// Save writes the record even after cancellation. Entries that cannot be written are
// dropped, so that the others are saved.
func (s *Store) Save(ctx context.Context) error {
	if s.Pacer != nil {
		s.Record.Pace = s.Pacer.Pace()
	}
	last := context.WithoutCancel(ctx)
	err := s.Recorder.Save(last, s.Record.forDisk())
	if err == nil {
		return nil
	}
	if dropped := Drop(&s.Record, status.MaxRecord); len(dropped) > 0 {
		s.noteDropped(dropped)
		err = s.Recorder.Save(last, s.Record.forDisk())
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// forDisk returns the record with a clock that changes a few times a day, unless an approval's age depends on it.
func (r Record) forDisk() Record {
	if len(r.Approved) == 0 {
		r.Clock = r.Clock.rounded()
	}
	return r
}

// TrySave saves the record. If that fails, a later save repeats it.
func (s *Store) TrySave(ctx context.Context, file string) {
	if err := s.Save(ctx); err != nil {
		s.Log.Warn("cannot save the record yet", "file", file, "err", err)
	}
}

// Commit saves a person's request. If that fails, the record is loaded again without it.
func (s *Store) Commit(ctx context.Context) error {
	err := s.Save(ctx)
	if err != nil {
		s.loaded = false
	}
	return err
}

// Publish writes the status even after cancellation. Entries that cannot be written are
// dropped, and the status names them.
func (s *Store) Publish(ctx context.Context, st *status.Status) error {
	last := context.WithoutCancel(ctx)
	outside.Hide(st)
	st.ReportDropped(s.dropped)
	err := s.Recorder.Publish(last, *st)
	if err == nil {
		return nil
	}
	if dropped := status.DropFrom(st, "status", status.MaxStatus, nil); len(dropped) > 0 {
		s.noteDropped(dropped)
		st.ReportDropped(s.dropped)
		err = s.Recorder.Publish(last, *st)
	}
	return err
}

// ResetDropped forgets the dropped entries. The next poll fetches them again.
func (s *Store) ResetDropped() { s.dropped = nil }

// Drop removes the entries that JSON cannot represent, and then the largest until the record has at most limit bytes.
// It first drops entries that a poll fetches again, and the history.
func Drop(r *Record, limit int) []status.Dropped {
	return status.DropFrom(r, "record", limit, []string{"Releases", "Lists", "Sources", "Offers", "History"})
}

func (s *Store) noteDropped(all []status.Dropped) {
	for _, d := range all {
		if !slices.Contains(s.dropped, d) {
			s.Log.Error("cannot save the entry", "entry", d.Entry, "reason", d.Reason)
			s.dropped = append(s.dropped, d)
		}
	}
}

// Lost is a record that was lost: holds, denials, approvals and rollback targets are unknown until a person confirms
// it.
type Lost struct {
	At     time.Time `json:"at,omitzero"`
	Reason string    `json:"reason"`
}

// Begin ends the beginning of an empty record. lost is why the node is known to have had another one, unless the store
// has said why; empty if it had none. It reports whether a record was lost.
func (r *Record) Begin(lost string, now time.Time) bool {
	r.New = false
	if r.Lost == nil && lost != "" {
		r.Lost = &Lost{Reason: lost}
	}
	if r.Lost != nil {
		r.Lost.At, r.Lost.Reason = now.UTC(), outside.Text(r.Lost.Reason)
	}
	return r.Lost != nil
}

// WhyLost returns the reason for the state of a node that has lost its record; nil if it has not.
func (r *Record) WhyLost() []status.Reason {
	if r.Lost == nil {
		return nil
	}
	return []status.Reason{{
		Kind: status.KindLost, Since: r.Lost.At,
		Text: "the record of the agent was lost: " + r.Lost.Reason + "; its holds, denials and rollback targets are " +
			"unknown; confirm this with image-update-agent resume --all",
	}}
}

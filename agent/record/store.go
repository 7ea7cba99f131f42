// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

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

// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// Store owns the record of a running agent: it loads the record once, and saves it.
type Store struct {
	Record   Record
	Recorder Recorder
	Pacer    Pacer // nil: none
	Log      *slog.Logger

	loaded  bool
	dropped []status.Dropped // what could not be saved since the last poll
}

// Load reads the record, once.
func (s *Store) Load(ctx context.Context) error {
	if s.loaded {
		return nil
	}
	var err error
	if s.Record, err = s.Recorder.Load(ctx); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	s.Record.Version = RecordVersion
	if s.Pacer != nil {
		s.Pacer.Resume(s.Record.Pace)
	}
	s.loaded = true
	return nil
}

// IsLoaded reports whether the record is known.
func (s *Store) IsLoaded() bool { return s.loaded }

// Save writes the record, also when the agent has been asked to stop: what was done is
// done. One entry that cannot be written costs neither the others nor the next apply.
func (s *Store) Save(ctx context.Context) error {
	if s.Pacer != nil {
		s.Record.Pace = s.Pacer.Pace()
	}
	last := context.WithoutCancel(ctx)
	err := s.Recorder.Save(last, s.Record)
	if err == nil {
		return nil
	}
	if gone := s.Record.Drop(status.MaxRecord); len(gone) > 0 {
		s.noteDropped(gone)
		err = s.Recorder.Save(last, s.Record)
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// SaveSoon saves the record now or later: what it says of a file is done already.
func (s *Store) SaveSoon(ctx context.Context, file string) {
	if err := s.Save(ctx); err != nil {
		s.Log.Warn("record not saved yet", "file", file, "err", err)
	}
}

// Commit saves what a person wants. What cannot be saved does not hold: the record is
// read again.
func (s *Store) Commit(ctx context.Context) error {
	err := s.Save(ctx)
	if err != nil {
		s.loaded = false
	}
	return err
}

// Publish writes the status. What of it cannot be written is left out of it, and named
// in it.
func (s *Store) Publish(ctx context.Context, st *status.Status) error {
	last := context.WithoutCancel(ctx)
	st.NameDropped(s.dropped)
	err := s.Recorder.Publish(last, *st)
	if err == nil {
		return nil
	}
	if gone := st.Drop(status.MaxStatus); len(gone) > 0 {
		s.noteDropped(gone)
		st.NameDropped(s.dropped)
		err = s.Recorder.Publish(last, *st)
	}
	return err
}

// ForgetDropped begins a poll, which learns anew what could not be saved.
func (s *Store) ForgetDropped() { s.dropped = nil }

func (s *Store) noteDropped(all []status.Dropped) {
	for _, d := range all {
		if !slices.Contains(s.dropped, d) {
			s.Log.Error("entry not saved", "entry", d.Entry, "reason", d.Reason)
			s.dropped = append(s.dropped, d)
		}
	}
}

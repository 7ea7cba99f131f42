// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// disk is a Recorder that writes valid JSON, unless it fails.
type disk struct {
	saved     record.Record
	published status.Status
	loads     int
	err       error
}

func (d *disk) Load(context.Context) (record.Record, error) { d.loads++; return d.saved, d.err }

func (d *disk) Save(ctx context.Context, r record.Record) error {
	if _, err := json.Marshal(r); err != nil {
		return err
	}
	d.saved = r
	return errors.Join(d.err, ctx.Err())
}

func (d *disk) Publish(ctx context.Context, s status.Status) error {
	if _, err := json.Marshal(s); err != nil {
		return err
	}
	d.published = s
	return errors.Join(d.err, ctx.Err())
}

type pacer struct{ pace record.Pace }

func (p *pacer) Pace() record.Pace    { return p.pace }
func (p *pacer) Resume(r record.Pace) { p.pace = r }
func (*pacer) TryAgain()              {}

var (
	errFull = errors.New("no space left on device")
	fatal   = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) // JSON cannot represent it
)

func TestStoreLoadsOnceAndSavesThePace(t *testing.T) {
	t.Parallel()
	pace := record.Pace{Budget: record.Budget{PerHour: 100, Remaining: 7}}
	d, p := &disk{saved: record.Record{Pace: pace}}, &pacer{}
	s := record.Store{Recorder: d, Pacer: p}
	require.NoError(t, s.Load(t.Context()))
	require.NoError(t, s.Load(t.Context()))
	assert.Equal(t, 1, d.loads)
	assert.True(t, s.IsLoaded())
	assert.Equal(t, pace, p.pace, "a restart lifts no limit")
	p.pace.Budget.Remaining = 3
	gone, leave := context.WithCancel(t.Context())
	leave()
	require.NoError(t, s.Save(gone), "it is saved after the caller has left, too")
	assert.Equal(t, 3, d.saved.Pace.Budget.Remaining)
	assert.Equal(t, record.RecordVersion, d.saved.Version)
	s = record.Store{Recorder: &disk{err: errFull}}
	require.ErrorIs(t, s.Load(t.Context()), errFull)
	assert.False(t, s.IsLoaded())
}

func TestRequestThatIsNotSavedIsForgotten(t *testing.T) {
	t.Parallel()
	d := &disk{}
	s := record.Store{Recorder: d, Log: slog.New(slog.DiscardHandler)}
	require.NoError(t, s.Load(t.Context()))
	d.err = errFull
	s.Record.Holds.Set("*", record.PersonHold{})
	s.TrySave(t.Context(), "velum.yaml")
	assert.True(t, s.IsLoaded(), "a later save repeats it")
	require.ErrorIs(t, s.Commit(t.Context()), errFull)
	assert.False(t, s.IsLoaded())
}

// An entry that JSON cannot represent does not affect others, and the status names it until the next poll.
func TestInvalidEntriesAreDroppedAlone(t *testing.T) {
	t.Parallel()
	d := &disk{}
	s := record.Store{Recorder: d, Log: slog.New(slog.DiscardHandler)}
	s.Record.Holds.Set("etcd", record.PersonHold{At: fatal})
	s.Record.Holds.Set("velum", record.PersonHold{})
	require.NoError(t, s.Save(t.Context()))
	assert.Len(t, d.saved.Holds, 1)
	st := status.Status{Images: []status.ImageStatus{{Image: "etcd", StageFrom: fatal}, {Image: "velum"}}}
	st.Reason = "https://user:hunter2@r.io"
	require.NoError(t, s.Publish(t.Context(), &st))
	assert.Len(t, d.published.Images, 1)
	require.Len(t, d.published.Dropped, 2)
	assert.Equal(t, "record: holds etcd", d.published.Dropped[0].Entry)
	assert.Equal(t, "status: images etcd", d.published.Dropped[1].Entry)
	assert.NotContains(t, d.published.Reason, "hunter2")
	s.ResetDropped()
	require.NoError(t, s.Publish(t.Context(), &status.Status{}))
	assert.Empty(t, d.published.Dropped)
}

// A record that is too large loses entries until it fits: first those that a poll fetches again.
func TestTooLargeRecordLosesItsLargestEntries(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 1000)
	r := record.Record{
		Sources: map[string]record.SourceRecord{"a": {Error: large}, "b": {Error: large + large}, "c": {}},
		Holds:   map[string]record.PersonHold{"r.io/velum": {Reason: large + large + large}},
	}
	gone := record.Drop(&r, 4500)
	require.Len(t, gone, 1)
	assert.Equal(t, "record: sources b", gone[0].Entry)
	assert.Contains(t, gone[0].Reason, "a limit of 4500")
	assert.Len(t, r.Sources, 2)
	gone = record.Drop(&r, 500)
	assert.Len(t, gone, 3, "the holds last")
	assert.Equal(t, "record: holds "+"r.io/velum", gone[2].Entry)
	assert.Empty(t, record.Drop(&record.Record{}, 500))
}

// The history is only for people: it is dropped before data that the agent acts on.
func TestHistoryIsDroppedBeforeHolds(t *testing.T) {
	t.Parallel()
	r := record.Record{Holds: record.Entries[record.PersonHold]{"*": {Reason: strings.Repeat("x", 4000)}}}
	for range 60 {
		r.History.Add([]status.HistoryEntry{{PodManifest: "velum.yaml"}})
	}
	whole, err := json.MarshalIndent(r, "", "  ")
	require.NoError(t, err)
	dropped := record.Drop(&r, len(whole)-1)
	require.Len(t, dropped, 1)
	assert.Contains(t, dropped[0].Entry, "record: history ")
	assert.Len(t, r.Holds, 1)
}

// SPDX-License-Identifier: Apache-2.0

// Package state keeps the agent's own files.
//
// The state directory (/var/lib/image-update-agent) holds record.json, what
// cannot be observed again, for root alone; a copy of the status; and the
// lock that keeps a second agent out. It is the same for all snapshots of the
// system, so an older agent may meet the record of a newer one. The runtime
// directory (/run/image-update-agent) holds status.json, for everybody; it is
// gone after a reboot, and then the copy says how things stood before.
//
// All are indented JSON that a person can read, written whole or not at all.
// A record that this agent cannot use (not JSON, a bad digest, of another
// version, too large, unsafe) is set aside under a name that says why, with a
// warning, and the agent starts with an empty one: everything in it can be
// learnt again, and a daemon that does not start helps nobody.
package state

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/atomicfile"
)

const (
	recordFile = "record.json"
	statusFile = "status.json"
)

// maxSize bounds each file, in bytes.
const maxSize = status.MaxRecord

// Store is the agent's files in their two directories. It implements
// record.Recorder.
type Store struct {
	stateDir, runtimeDir string
	log                  *slog.Logger

	mu     sync.Mutex
	copied *status.Status // the last copy, without what changes all the time
	at     time.Time      // when it was written
}

var _ record.Recorder = (*Store)(nil)

// New names the directories, which are made when something is written.
func New(stateDir, runtimeDir string, log *slog.Logger) *Store {
	return &Store{stateDir: stateDir, runtimeDir: runtimeDir, log: log}
}

// Load reads the record. One that cannot be used is set aside and is an empty
// one; an error is left for a directory or disk that does not answer.
func (s *Store) Load(ctx context.Context) (record.Record, error) {
	if err := ctx.Err(); err != nil {
		return record.Record{}, err
	}
	data, err := read(s.stateDir, recordFile)
	if errors.Is(err, fs.ErrNotExist) {
		return record.Record{}, nil
	}
	var rec record.Record
	if err == nil {
		rec, err = decodeRecord(data)
	}
	if why, is := errors.AsType[*unusable](err); is {
		s.setAside(why)
		return record.Record{}, nil
	}
	if err != nil {
		return record.Record{}, fmt.Errorf("state: %w", err)
	}
	return rec, nil
}

// unusable is why a file is set aside: a word for its name, and the cause.
type unusable struct {
	word string
	err  error
}

func (u *unusable) Error() string { return u.err.Error() }
func (u *unusable) Unwrap() error { return u.err }

// read reads a file of ours: unusable where it is not one that we wrote.
func read(dir, name string) ([]byte, error) {
	d, err := atomicfile.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	file, err := d.Read(name, maxSize)
	if errors.Is(err, atomicfile.ErrUnsafe) || errors.Is(err, atomicfile.ErrTooLarge) {
		return nil, &unusable{"unreadable", err}
	}
	return file.Data, err
}

func decodeRecord(data []byte) (record.Record, error) {
	var form struct{ Version int }
	if err := json.Unmarshal(data, &form); err != nil {
		return record.Record{}, &unusable{"unreadable", err}
	}
	if form.Version < 1 || form.Version > record.RecordVersion {
		err := fmt.Errorf("version %d, this agent knows 1 to %d", form.Version, record.RecordVersion)
		return record.Record{}, &unusable{strconv.Itoa(form.Version), err}
	}
	var rec record.Record
	if err := json.Unmarshal(data, &rec); err != nil {
		return record.Record{}, &unusable{"unreadable", err}
	}
	if err := checkDigests(rec); err != nil {
		return record.Record{}, &unusable{"unreadable", err}
	}
	return rec, nil
}

// setAside renames the record, whatever it is. If that fails the record stays,
// and Save will say what is wrong with it.
func (s *Store) setAside(why *unusable) {
	aside := recordFile + "." + why.word + ".aside"
	err := os.Rename(filepath.Join(s.stateDir, recordFile), filepath.Join(s.stateDir, aside))
	s.log.Warn("record set aside, starting with an empty one",
		"dir", s.stateDir, "file", recordFile, "aside", aside, "cause", why.err, "rename", err)
}

// Save writes the record, for root alone. Equal content is not written.
func (s *Store) Save(ctx context.Context, rec record.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rec.Version = record.RecordVersion
	if err := write(s.stateDir, recordFile, rec, 0o600, status.MaxRecord); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// copyEvery is how old the copy may be when nothing but times has changed.
const copyEvery = 24 * time.Hour

// Publish writes the status, for everybody, to the runtime directory. The copy
// in the state directory, which is on a disk, is written when more has changed
// than what every poll moves (times, the budget) and a pull's progress, and once
// a day.
func (s *Store) Publish(ctx context.Context, st status.Status) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := write(s.runtimeDir, statusFile, st, 0o644, status.MaxStatus)
	if copyErr := s.publishCopy(st); copyErr != nil {
		err = errors.Join(err, copyErr)
	}
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

func (s *Store) publishCopy(st status.Status) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	lasting := lasting(st)
	if age := st.Written.Sub(s.at); age >= 0 && age < copyEvery && reflect.DeepEqual(&lasting, s.copied) {
		return nil
	}
	if err := write(s.stateDir, statusFile, st, 0o644, status.MaxStatus); err != nil {
		return err
	}
	s.copied, s.at = &lasting, st.Written
	return nil
}

// lasting is a status without what moves when nothing happens.
func lasting(status status.Status) status.Status {
	status.Written, status.Progress, status.Budget = time.Time{}, nil, nil
	status.LastCheck, status.NextCheck = nil, nil
	status.Sources = slices.Clone(status.Sources)
	for n := range status.Sources {
		status.Sources[n].LastSuccess = nil
	}
	return status
}

// write makes the directory if need be, and the file as indented JSON.
func write(dir, name string, content any, mode fs.FileMode, limit int) error {
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	data = append(data, '\n')
	if len(data) > limit {
		return fmt.Errorf("%s: %w: %d bytes, at most %d can be read again",
			filepath.Join(dir, name), atomicfile.ErrTooLarge, len(data), limit)
	}
	d, err := makeDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	_, err = d.Write(name, data, atomicfile.Options{Mode: mode})
	return err
}

// makeDir opens a directory of ours; systemd makes it for the unit, and this
// for everybody else. Others may enter, for the status.
func makeDir(dir string) (*atomicfile.Dir, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return atomicfile.OpenDir(dir)
}

// ReadStatus reads the last status that was published: from the runtime
// directory, else the copy of the time before the last boot. Its Written says
// how old it is. fs.ErrNotExist: no agent has published any.
func ReadStatus(runtimeDir, stateDir string) (status.Status, error) {
	var bad, absent error
	for _, dir := range []string{runtimeDir, stateDir} {
		switch status, err := readStatus(dir); {
		case err == nil:
			return status, nil
		case errors.Is(err, fs.ErrNotExist):
			absent = errors.Join(absent, err)
		default:
			bad = errors.Join(bad, err)
		}
	}
	return status.Status{}, fmt.Errorf("state: %w", cmp.Or(bad, absent))
}

func readStatus(dir string) (status.Status, error) {
	data, err := read(dir, statusFile)
	if err != nil {
		return status.Status{}, err
	}
	var st status.Status
	err = json.Unmarshal(data, &st)
	if err == nil && st.SchemaVersion != status.StatusSchemaVersion {
		err = fmt.Errorf("schema version %d, this agent knows %d", st.SchemaVersion, status.StatusSchemaVersion)
	}
	if err == nil {
		err = checkDigests(st)
	}
	if err != nil {
		return status.Status{}, fmt.Errorf("%s: %w", filepath.Join(dir, statusFile), err)
	}
	return st, nil
}

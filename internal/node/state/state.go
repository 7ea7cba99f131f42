// SPDX-License-Identifier: Apache-2.0

// Package state stores the agent's files.
//
// The state directory (/var/lib/image-update-agent) holds record.json (the state that cannot be observed again,
// readable only by root), a copy of the status, and the lock that keeps a second agent out. All snapshots of the system
// share it, so an older agent may find the record of a newer one. The runtime directory (/run/image-update-agent) holds
// status.json, readable by all users; after a reboot, the copy has the last status.
//
// All are indented JSON, written atomically. A record that this agent cannot use (not JSON, a bad digest, of another
// version, too large, unsafe) is renamed, with a warning, and the agent starts with an empty one: it can learn
// everything again.
//
// Why one document and no database: a few kilobytes are rewritten in a cycle, at one consistent moment, and a person
// can read them. The price is that one bad entry, such as a time in the year 10000, would keep all others from being
// saved. So when a save fails, the entries that JSON cannot write are left out, then the largest, first those that a
// poll learns again; the status names them.
package state

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "crypto/sha256" // digest.Validate needs linked algorithms
	_ "crypto/sha512"
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

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

const (
	recordFile = "record.json"
	statusFile = "status.json"
)

// maxSize limits each file, in bytes.
const maxSize = status.MaxRecord

// Store is the agent's files in their two directories. It implements
// record.Recorder.
type Store struct {
	stateDir, runtimeDir string
	log                  *slog.Logger

	mu     sync.Mutex
	wrote  map[string][sha256.Size]byte // SHA-256 of the last content, by path
	copied *status.Status               // the last copy, see lasting
	at     time.Time                    // time of its write
}

var _ record.Recorder = (*Store)(nil)

// New returns a store in two directories, which the first write creates.
func New(stateDir, runtimeDir string, log *slog.Logger) *Store {
	return &Store{stateDir: stateDir, runtimeDir: runtimeDir, log: log, wrote: map[string][sha256.Size]byte{}}
}

// Load reads the record. An unusable one is set aside, and Load returns an empty one; the
// error is one of the directory or disk.
func (s *Store) Load(ctx context.Context) (record.Record, error) {
	rec, why, err := load(ctx, s.stateDir)
	if why != nil {
		s.setAside(why)
	}
	return rec, err
}

// load reads the record of a directory. If it is unusable, load returns why, and an empty one.
func load(ctx context.Context, stateDir string) (rec record.Record, why *unusable, err error) {
	if err := ctx.Err(); err != nil {
		return record.Record{}, nil, err
	}
	data, err := read(stateDir, recordFile)
	if errors.Is(err, fs.ErrNotExist) {
		return record.Record{Lost: missing(stateDir)}, nil, nil
	}
	if err == nil {
		rec, err = decodeRecord(data)
	}
	if why, is := errors.AsType[*unusable](err); is {
		return record.Record{Lost: &record.Lost{Reason: why.aside() + ": " + why.Error()}}, why, nil
	}
	if err != nil {
		return record.Record{}, nil, fmt.Errorf("state: %w", err)
	}
	return rec, nil, nil
}

// missing returns why a record that is not there was lost; nil if the agent has never run on the node. It saves a
// record before its first status.
func missing(stateDir string) *record.Lost {
	if _, err := os.Lstat(filepath.Join(stateDir, statusFile)); err != nil {
		return nil
	}
	return &record.Lost{Reason: recordFile + " is missing"}
}

// unusable is the error of a file to set aside, with a word for its new name.
type unusable struct {
	word string
	err  error
}

func (u *unusable) Error() string { return u.err.Error() }

// aside is the new name of the record.
func (u *unusable) aside() string { return recordFile + "." + u.word + ".aside" }

func (u *unusable) Unwrap() error { return u.err }

// read reads a file of the agent; the error is unusable if another program wrote it.
func read(dir, name string) ([]byte, error) {
	d, err := nodefile.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	file, err := d.Read(name, maxSize)
	if errors.Is(err, nodefile.ErrUnsafe) || errors.Is(err, nodefile.ErrTooLarge) {
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
	if err := renameOld(data, &rec); err != nil {
		return record.Record{}, &unusable{"unreadable", err}
	}
	if err := checkDigests(rec); err != nil {
		return record.Record{}, &unusable{"unreadable", err}
	}
	rec.History = rec.History.Cut()
	if _, err := encode(rec, status.MaxRecord); err != nil { // nothing would be recorded any more
		return record.Record{}, &unusable{"unreadable", err}
	}
	return rec, nil
}

// renameOld reads the fields that had other names in builds before version 0.1.0.
func renameOld(data []byte, rec *record.Record) error {
	var old struct {
		Unproved record.Entries[record.Unsigned]
		Least    record.Entries[int64]
		Pace     struct{ Budget struct{ Left int } }
	}
	if err := json.Unmarshal(data, &old); err != nil {
		return err
	}
	if rec.Unsigned == nil {
		rec.Unsigned = old.Unproved
	}
	if rec.MinSpace == nil {
		rec.MinSpace = old.Least
	}
	if b := &rec.Pace.Budget; b.Remaining == 0 {
		b.Remaining = old.Pace.Budget.Left
	}
	return nil
}

// setAside renames the record. If that fails, the record stays and Save reports the error.
func (s *Store) setAside(why *unusable) {
	aside := why.aside()
	err := os.Rename(filepath.Join(s.stateDir, recordFile), filepath.Join(s.stateDir, aside))
	s.log.Warn("cannot use the record, starting with an empty one",
		"dir", s.stateDir, "file", recordFile, "aside", aside, "cause", why.err, "rename", err)
}

// Save writes the record, readable only by root. It does not write equal content.
func (s *Store) Save(ctx context.Context, rec record.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rec.Version = record.RecordVersion
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.write(s.stateDir, recordFile, rec, 0o600, status.MaxRecord); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// copyEvery is the maximum age of the copy if nothing lasting has changed.
const copyEvery = 24 * time.Hour

// Publish writes the status to the runtime directory, readable by all users. To spare the disk, it writes the copy in
// the state directory only if something lasting has changed, and once a day.
func (s *Store) Publish(ctx context.Context, st status.Status) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.Join(s.write(s.runtimeDir, statusFile, st, 0o644, status.MaxStatus), s.publishCopy(st))
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

func (s *Store) publishCopy(st status.Status) error {
	lasting := lasting(st)
	if age := st.Written.Sub(s.at); age >= 0 && age < copyEvery && reflect.DeepEqual(&lasting, s.copied) {
		return nil
	}
	if err := s.write(s.stateDir, statusFile, st, 0o644, status.MaxStatus); err != nil {
		return err
	}
	s.copied, s.at = &lasting, st.Written
	return nil
}

// lasting returns a status without the parts that change at every poll (times, the budget) and without the progress of
// a pull.
func lasting(status status.Status) status.Status {
	status.Written, status.Progress, status.Budget = time.Time{}, nil, nil
	status.LastCheck, status.NextCheck = nil, nil
	status.Sources = slices.Clone(status.Sources)
	for n := range status.Sources {
		status.Sources[n].LastSuccess = nil
	}
	return status
}

// write writes a file as indented JSON, and creates the directory if needed.
func (s *Store) write(dir, name string, content any, mode fs.FileMode, limit int) error {
	data, err := encode(content, limit)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	d, err := makeDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	sum, path := sha256.Sum256(data), filepath.Join(dir, name)
	last, known := s.wrote[path]
	delete(s.wrote, path)
	if _, err = d.Write(name, data, nodefile.Options{Mode: mode, Differs: known && sum != last}); err == nil {
		s.wrote[path] = sum
	}
	return err
}

// encode returns the bytes of a file.
func encode(content any, limit int) ([]byte, error) {
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return nil, err
	}
	if data = append(data, '\n'); len(data) > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d can be read again", nodefile.ErrTooLarge, len(data), limit)
	}
	return data, nil
}

// makeDir opens a directory of the agent, and creates it if systemd has not. Other users may enter it, for the status.
func makeDir(dir string) (*nodefile.Dir, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return nodefile.OpenDir(dir)
}

// ReadStatus reads the last published status from the runtime directory, or else the copy
// from before the boot (status.Status.BeforeBoot), or of this boot if the published one cannot be read; Written is its
// time. The error is fs.ErrNotExist if neither file exists.
func ReadStatus(runtimeDir, stateDir string) (status.Status, error) {
	var bad, absent error
	for _, dir := range []string{runtimeDir, stateDir} {
		switch status, err := readStatus(dir); {
		case err == nil && dir == stateDir && bad == nil:
			return status.BeforeBoot(), nil
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

// Reader reads the record and writes nothing: a plan may run beside the daemon, to which the files belong.
type Reader struct{ stateDir string }

var _ record.Recorder = Reader{}

// NewReader returns a reader of the record in a directory.
func NewReader(stateDir string) Reader { return Reader{stateDir} }

// Load reads the record. An unusable one counts as empty, as for the daemon, but it stays where it is.
func (r Reader) Load(ctx context.Context) (record.Record, error) {
	rec, _, err := load(ctx, r.stateDir)
	return rec, err
}

// Save writes nothing.
func (Reader) Save(context.Context, record.Record) error { return nil }

// Publish writes nothing.
func (Reader) Publish(context.Context, status.Status) error { return nil }

var digestType = reflect.TypeFor[digest.Digest]()

// checkDigests validates every digest in a value read from a file: methods of digest.Digest panic on a malformed one.
func checkDigests(value any) error { return checkDigest(reflect.ValueOf(value)) }

func checkDigest(v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == digestType {
			return validDigest(digest.Digest(v.String()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return checkDigest(v.Elem())
		}
	case reflect.Struct:
		for field, inner := range v.Fields() {
			if !field.IsExported() { // not from a file: a time's location
				continue
			}
			if err := checkDigest(inner); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Map:
		for _, inner := range v.Seq2() {
			if err := checkDigest(inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func validDigest(d digest.Digest) error {
	if d == "" {
		return nil
	}
	if err := d.Validate(); err != nil {
		return fmt.Errorf("digest %.200q: %w", string(d), err)
	}
	return nil
}

// lockFile is locked in both directories: a full disk may have no room for that of the state directory.
const lockFile = "lock"

// Lock keeps other agents out until unlock is called or the process ends: they get a *nodefile.LockedError. It does not
// wait. It removes the temporary files that a crash left in the two directories.
func (s *Store) Lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var unlocks []func()
	release := func() {
		for _, each := range unlocks {
			each()
		}
	}
	defer func() {
		if err != nil {
			release()
			err = fmt.Errorf("state: %w", err)
		}
	}()
	var dirs []*nodefile.Dir
	defer func() {
		for _, dir := range dirs {
			_ = dir.Close()
		}
	}()
	for _, path := range []string{s.runtimeDir, s.stateDir} {
		dir, err := makeDir(path)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
		one, err := nodefile.Lock(ctx, filepath.Join(path, lockFile), 0)
		if path == s.stateDir && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		unlocks = append(unlocks, one)
	}
	for _, dir := range dirs {
		err = errors.Join(err, dir.Sweep())
	}
	return release, err
}

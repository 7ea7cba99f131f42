// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

func newStore(t *testing.T) (*Store, *bytes.Buffer) {
	t.Helper()
	root := t.TempDir()
	log := &bytes.Buffer{}
	return New(filepath.Join(root, "lib"), filepath.Join(root, "run"), slog.New(slog.NewTextHandler(log, nil))), log
}

// put places content as a file of the state directory.
func put(t *testing.T, s *Store, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(s.stateDir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(s.stateDir, name), []byte(content), 0o600))
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(data)
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func rec() record.Record {
	d := digest.FromString("a")
	return record.Record{
		Version: record.RecordVersion, State: status.StateStaged, Since: noon, LastCheck: noon,
		Releases: map[string]release.Release{"r@" + d.String(): {Repository: "r", Tag: "1", Digest: d, Build: release.Build{Config: d, Size: 7}}},
		Lists:    map[string]record.TagList{"r": {At: noon, Tags: []string{"1", "1-rev1"}}},
		Wrote:    map[string]digest.Digest{"velum.yaml": d},
		Good:     map[string]record.Good{"velum.yaml/velum": {Repository: "r", Running: d, Before: []release.Pin{{Repository: "r", Digest: d}}}},
		Approved: map[string]record.Approval{"velum.yaml": {At: noon, Offer: "x", By: status.Actor{Kind: status.ByPerson, UID: new(uint32(7))}}},
		History:  record.History{{At: noon, PodManifest: "velum.yaml", Digest: d, By: status.Actor{Kind: status.ByAuto}}},
	}
}

func TestRecordSurvivesSaveAndLoad(t *testing.T) {
	t.Parallel()
	s, log := newStore(t)
	require.NoError(t, s.Save(t.Context(), rec()))
	got, err := s.Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, rec(), got)
	assert.Empty(t, log.String())

	info, err := os.Stat(filepath.Join(s.stateDir, recordFile))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())
	text := content(t, s.stateDir, recordFile)
	assert.True(t, strings.HasPrefix(text, "{\n  \"version\": 1,\n"), text)
	assert.True(t, strings.HasSuffix(text, "\n}\n"), text)
}

func TestEveryRecordHasAVersion(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	require.NoError(t, s.Save(t.Context(), record.Record{}))
	got, err := s.Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, record.Record{Version: record.RecordVersion}, got)
}

func TestAnEqualRecordIsNotWritten(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	require.NoError(t, s.Save(t.Context(), rec()))
	before, err := os.Stat(filepath.Join(s.stateDir, recordFile))
	require.NoError(t, err)
	require.NoError(t, s.Save(t.Context(), rec()))
	after, err := os.Stat(filepath.Join(s.stateDir, recordFile))
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after))
	require.NoError(t, os.Remove(filepath.Join(s.stateDir, recordFile)))
	require.NoError(t, s.Save(t.Context(), rec()))
	assert.FileExists(t, filepath.Join(s.stateDir, recordFile))
}

func TestAnAbsentRecordIsEmpty(t *testing.T) {
	t.Parallel()
	s, log := newStore(t)
	got, err := s.Load(t.Context())
	require.NoError(t, err)
	assert.Zero(t, got)
	assert.NoDirExists(t, s.stateDir, "reading makes nothing")
	assert.Empty(t, log.String())
}

// strangeRecords are files in place of a record, and the name each is set
// aside under.
var strangeRecords = map[string]struct {
	make func(t *testing.T, s *Store)
	word string
}{
	"empty":     {func(t *testing.T, s *Store) { put(t, s, recordFile, "") }, "unreadable"},
	"truncated": {func(t *testing.T, s *Store) { put(t, s, recordFile, `{"version": 1, "lists": {`) }, "unreadable"},
	"not JSON":  {func(t *testing.T, s *Store) { put(t, s, recordFile, "version: 1\n") }, "unreadable"},
	"a list":    {func(t *testing.T, s *Store) { put(t, s, recordFile, "[]") }, "unreadable"},
	"wrong type": {func(t *testing.T, s *Store) {
		put(t, s, recordFile, `{"version": 1, "lists": 7}`)
	}, "unreadable"},
	"more than can be saved": {func(t *testing.T, s *Store) {
		put(t, s, recordFile, `{"version":1,"sources":{"`+strings.Repeat("<", 3<<20)+`":{}}}`) // saved as \u003c
	}, "unreadable"},
	"a time that cannot be saved": {func(t *testing.T, s *Store) {
		put(t, s, recordFile, `{"version":1,"history":[{"at":"2026-01-02T03:04:05+24:00"}]}`)
	}, "unreadable"},
	"bad digest": {func(t *testing.T, s *Store) {
		put(t, s, recordFile, `{"version": 1, "good": {"a/b": {"repository": "r", "running": "none"}}}`)
	}, "unreadable"},
	"bad digest in the history": {func(t *testing.T, s *Store) {
		put(t, s, recordFile, `{"version": 1, "history": [{"digest": "sha256:12"}]}`)
	}, "unreadable"},
	"bad digest in a map": {func(t *testing.T, s *Store) {
		put(t, s, recordFile, `{"version": 1, "wrote": {"a.yaml": "sha256:12"}}`)
	}, "unreadable"},
	"newer": {func(t *testing.T, s *Store) {
		put(t, s, recordFile, fmt.Sprintf(`{"version": %d, "lists": 7}`, record.RecordVersion+1))
	}, fmt.Sprint(record.RecordVersion + 1)},
	"without version": {func(t *testing.T, s *Store) { put(t, s, recordFile, "{}") }, "0"},
	"too large": {func(t *testing.T, s *Store) {
		put(t, s, recordFile, `{"version": 1}`+strings.Repeat(" ", maxSize))
	}, "unreadable"},
	"symlink": {func(t *testing.T, s *Store) {
		put(t, s, "elsewhere", `{"version": 1}`)
		require.NoError(t, os.Symlink("elsewhere", filepath.Join(s.stateDir, recordFile)))
	}, "unreadable"},
}

func TestUnusableRecordIsSetAside(t *testing.T) {
	t.Parallel()
	for name, strange := range strangeRecords {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, log := newStore(t)
			strange.make(t, s)
			before, err := os.Lstat(filepath.Join(s.stateDir, recordFile))
			require.NoError(t, err)

			for range 2 { // the second time, one file is already set aside
				got, err := s.Load(t.Context())
				require.NoError(t, err)
				require.Equal(t, record.Record{Lost: got.Lost}, got)
			}
			after, err := os.Lstat(filepath.Join(s.stateDir, recordFile+"."+strange.word+".aside"))
			require.NoError(t, err)
			assert.True(t, os.SameFile(before, after), "set aside as it was")
			assert.Equal(t, 1, strings.Count(log.String(), "cannot use the record"), log.String())

			require.NoError(t, s.Save(t.Context(), rec()))
			got, err := s.Load(t.Context())
			require.NoError(t, err)
			assert.Equal(t, rec(), got)
		})
	}
}

// many returns a format with the numbers below n, separated by commas.
func many(format string, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// What is loaded can be saved: nothing would be recorded any more.
func TestALongHistoryIsCutWhenItIsRead(t *testing.T) {
	t.Parallel()
	s, log := newStore(t)
	put(t, s, recordFile, `{"version":1,"history":[`+many(`{"at":"2026-01-02T03:04:05Z","podManifest":"%d.yaml"}`, 100_001)+`]}`)
	got, err := s.Load(t.Context())
	require.NoError(t, err)
	assert.Empty(t, log.String())
	require.Equal(t, 50, len(got.History)) //nolint:testifylint // Len would print a hundred thousand entries
	assert.Equal(t, "0.yaml", got.History[0].PodManifest, "the newest stay")
	require.NoError(t, s.Save(t.Context(), got))
}

// A newer agent of the same version may have more fields: an older one starts, and drops them.
func TestUnknownFieldsOfARecordAreDropped(t *testing.T) {
	t.Parallel()
	s, log := newStore(t)
	put(t, s, recordFile, `{"version": 1, "holds": {"*": {"at": "2026-03-04T12:00:00Z", "by": {"kind": "person", "new": 1}}}, "newer": [{"a": 1}]}`)
	got, err := s.Load(t.Context())
	require.NoError(t, err)
	assert.Len(t, got.Holds, 1)
	assert.Empty(t, log.String())
}

// Builds before version 0.1.0 had other names for some fields.
func TestOldNamesOfARecordAreRead(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	was := record.Record{
		Unsigned: record.Entries[record.Unsigned]{"suse.com/a@sha256:" + strings.Repeat("a", 64): {Reason: "not signed"}},
		MinSpace: record.Entries[int64]{"suse.com/b@sha256:" + strings.Repeat("b", 64): 7},
		Pace:     record.Pace{Budget: record.Budget{PerHour: 60, Remaining: 5, At: noon}},
	}
	require.NoError(t, s.Save(t.Context(), was))
	names := strings.NewReplacer(`"unsigned":`, `"unproved":`, `"minSpace":`, `"least":`, `"remaining":`, `"left":`)
	put(t, s, recordFile, names.Replace(content(t, s.stateDir, recordFile)))
	got, err := s.Load(t.Context())
	require.NoError(t, err)
	was.Version = record.RecordVersion
	assert.Equal(t, was, got)
}

func TestTheLastUnusableRecordIsKept(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for _, text := range []string{"first", "second"} {
		put(t, s, recordFile, text)
		_, err := s.Load(t.Context())
		require.NoError(t, err)
	}
	assert.Equal(t, "second", content(t, s.stateDir, recordFile+".unreadable.aside"))
}

func TestRecordThatCannotBeSetAsideIsTolerated(t *testing.T) {
	t.Parallel()
	s, log := newStore(t)
	require.NoError(t, os.MkdirAll(filepath.Join(s.stateDir, recordFile+".unreadable.aside"), 0o755))
	put(t, s, recordFile, "nonsense")
	got, err := s.Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, record.Record{Lost: got.Lost}, got)
	assert.Contains(t, log.String(), "file exists")
}

func TestAFileInPlaceOfTheDirectoryIsAnError(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	require.NoError(t, os.WriteFile(s.stateDir, nil, 0o600))
	_, err := s.Load(t.Context())
	require.ErrorContains(t, err, s.stateDir+": not a directory")
	require.ErrorContains(t, s.Save(t.Context(), rec()), "state: mkdir "+s.stateDir)
	require.Error(t, s.Publish(t.Context(), status.Status{}))
	_, err = s.Lock(t.Context())
	require.Error(t, err)
}

func TestUnreadableRecordIsNotWritten(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	require.NoError(t, s.Save(t.Context(), rec()))
	huge := rec()
	huge.Lists = map[string]record.TagList{"r": {Tags: []string{strings.Repeat("x", maxSize)}}}
	require.ErrorContains(t, s.Save(t.Context(), huge), "too large")
	got, err := s.Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, rec(), got)
}

// Readers of a status limit its size. The last readable one stays, in both places.
func TestUnreadableStatusIsNotWritten(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	good := st(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC))
	require.NoError(t, s.Publish(t.Context(), good))
	huge := good
	huge.Written, huge.Reason = good.Written.Add(time.Hour), strings.Repeat("x", status.MaxStatus)
	err := s.Publish(t.Context(), huge)
	for _, dir := range []string{s.runtimeDir, s.stateDir} {
		require.ErrorContains(t, err, filepath.Join(dir, statusFile)+": too large")
	}
	got, err := ReadStatus(s.runtimeDir, s.stateDir)
	require.NoError(t, err)
	assert.Equal(t, good, got)
}

func TestCanceledContextDoesNothing(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, loadErr := s.Load(ctx)
	_, lockErr := s.Lock(ctx)
	for _, err := range []error{loadErr, lockErr, s.Save(ctx, rec()), s.Publish(ctx, status.Status{})} {
		require.ErrorIs(t, err, context.Canceled)
	}
	assert.NoDirExists(t, s.stateDir)
}

func st(written time.Time) status.Status {
	return status.Status{
		SchemaVersion: status.StatusSchemaVersion, State: status.StateCurrent, Reason: "nothing to do",
		Since: noon, Written: written,
		Sources: []status.SourceStatus{}, Images: []status.ImageStatus{}, PodManifests: []status.PodStatus{},
	}
}

func TestStatusIsReadableByAllUsers(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	require.NoError(t, s.Publish(t.Context(), st(noon)))
	for _, dir := range []string{s.runtimeDir, s.stateDir} {
		info, err := os.Stat(filepath.Join(dir, statusFile))
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o644), info.Mode())
		info, err = os.Stat(dir)
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o755), info.Mode().Perm())
	}
	got, err := ReadStatus(s.runtimeDir, s.stateDir)
	require.NoError(t, err)
	assert.Equal(t, st(noon), got)
}

func TestTheCopyIsWrittenWhenSomethingLastingChanges(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	written := func(dir string) time.Time {
		var status status.Status
		require.NoError(t, json.Unmarshal([]byte(content(t, dir, statusFile)), &status))
		return status.Written
	}
	require.NoError(t, s.Publish(t.Context(), st(noon)))
	later := st(noon.Add(time.Second))
	later.Progress = &status.Progress{Reference: "r:1", Done: 5}
	require.NoError(t, s.Publish(t.Context(), later))
	assert.Equal(t, later.Written, written(s.runtimeDir))
	assert.Equal(t, noon, written(s.stateDir), "the disk is spared")
	later.LastCheck, later.NextCheck, later.Budget = &later.Written, &later.Written, &status.BudgetStatus{Remaining: 1}
	later.Sources = []status.SourceStatus{{Repository: "r", LastSuccess: &later.Written}}
	require.NoError(t, s.Publish(t.Context(), later))
	assert.Equal(t, later.Written, written(s.stateDir), "a source is new")
	polled := later
	polled.Written = later.Written.Add(time.Second)
	polled.LastCheck, polled.NextCheck, polled.Budget = &polled.Written, &polled.Written, nil
	polled.Sources = []status.SourceStatus{{Repository: "r", LastSuccess: &polled.Written}}
	require.NoError(t, s.Publish(t.Context(), polled))
	assert.Equal(t, later.Written, written(s.stateDir), "a poll that finds nothing spares it, too")
	assert.Equal(t, &polled.Written, polled.Sources[0].LastSuccess, "the status is the caller's")
	polled.Sources = []status.SourceStatus{{Repository: "r", LastSuccess: &polled.Written, Failures: 1}}
	require.NoError(t, s.Publish(t.Context(), polled))
	assert.Equal(t, polled.Written, written(s.stateDir), "a failure does not")
	polled.Written = polled.Written.Add(copyEvery)
	require.NoError(t, s.Publish(t.Context(), polled))
	assert.Equal(t, polled.Written, written(s.stateDir), "it is no older than a day")
	polled.Written = noon
	require.NoError(t, s.Publish(t.Context(), polled))
	assert.Equal(t, noon, written(s.stateDir), "nor from a time that is not yet")
	later.Reason = "something else"
	require.NoError(t, s.Publish(t.Context(), later))
	assert.Equal(t, later.Written, written(s.stateDir))
}

func TestFailedCopyIsRetried(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	require.NoError(t, os.MkdirAll(filepath.Join(s.stateDir, statusFile), 0o755))
	require.ErrorContains(t, s.Publish(t.Context(), st(noon)), "unsafe")
	_, err := readStatus(s.runtimeDir)
	require.NoError(t, err, "one of them is better than none")
	require.NoError(t, os.Remove(filepath.Join(s.stateDir, statusFile)))
	require.NoError(t, s.Publish(t.Context(), st(noon)))
	_, err = readStatus(s.stateDir)
	require.NoError(t, err)
}

func TestAfterABootTheCopyIsRead(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	_, err := ReadStatus(s.runtimeDir, s.stateDir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	before := st(noon)
	before.Failures = []status.Failure{{PodManifest: "velum.yaml"}}
	before.History = []status.HistoryEntry{{PodManifest: "velum.yaml"}}
	require.NoError(t, s.Publish(t.Context(), before))
	require.NoError(t, os.RemoveAll(s.runtimeDir))
	got, err := ReadStatus(s.runtimeDir, s.stateDir)
	require.NoError(t, err)
	assert.Equal(t, noon, got.Written)
	assert.Empty(t, got.Failures)
	assert.Len(t, got.History, 1, "the past stays")
	assert.Equal(t, status.StateUnchecked, got.State, "what was current then need not run now")
	assert.True(t, got.HasReason(status.KindStarting))
}

func TestInvalidStatusIsNotReturned(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nonsense": "x", "empty": "", "newer": `{"schemaVersion": 2}`, "no version": `{}`,
		"bad digest": `{"schemaVersion": 1, "images": [{"running": {"tag": "1", "digest": "short"}}]}`,
	} {
		s, _ := newStore(t)
		require.NoError(t, s.Publish(t.Context(), st(noon)))
		require.NoError(t, os.WriteFile(filepath.Join(s.runtimeDir, statusFile), []byte(text), 0o644))
		got, err := ReadStatus(s.runtimeDir, s.stateDir)
		require.NoError(t, err, name)
		assert.Equal(t, st(noon), got, "the copy is better than nothing, and is not from before the boot")
		require.NoError(t, os.WriteFile(filepath.Join(s.stateDir, statusFile), []byte(text), 0o644))
		_, err = ReadStatus(s.runtimeDir, s.stateDir)
		require.ErrorContains(t, err, filepath.Join(s.runtimeDir, statusFile), name)
		require.NotErrorIs(t, err, fs.ErrNotExist, name)
		require.NoError(t, os.Remove(filepath.Join(s.stateDir, statusFile)))
		_, err = ReadStatus(s.runtimeDir, s.stateDir)
		require.ErrorContains(t, err, filepath.Join(s.runtimeDir, statusFile), name)
		require.NotErrorIs(t, err, fs.ErrNotExist, "one was published")
	}
}

// FuzzRecord: the file is either rejected as unusable, or a record with valid digests that survives a save and load.
func FuzzRecord(f *testing.F) {
	good, err := json.Marshal(rec())
	require.NoError(f, err)
	for _, seed := range []string{string(good), "", "{}", `{"version":2}`, `{"version":1,"wrote":{"a":"sha256:1"}}`, `{"Version":1,"since":"x"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := decodeRecord(data)
		if err != nil {
			var why *unusable
			require.ErrorAs(t, err, &why)
			require.Regexp(t, `^(-?\d+|unreadable)$`, why.word)
			return
		}
		for _, good := range first.Good {
			if good.Running != "" {
				require.NotPanics(t, func() { _ = good.Running.Encoded() })
			}
		}
		saved, err := json.Marshal(first)
		require.NoError(t, err)
		second, err := decodeRecord(saved)
		require.NoError(t, err)
		again, err := json.Marshal(second)
		require.NoError(t, err)
		require.JSONEq(t, string(saved), string(again))
	})
}

// A record that is gone or was set aside was lost; on a new node there was none.
func TestLostRecordIsToldFromANewNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := New(dir, t.TempDir(), slog.New(slog.DiscardHandler))
	load := func() *record.Lost {
		rec, err := s.Load(t.Context())
		require.NoError(t, err)
		return rec.Lost
	}
	assert.Nil(t, load())
	require.NoError(t, s.Save(t.Context(), record.Record{}))
	require.NoError(t, s.Publish(t.Context(), status.Status{}))
	assert.Nil(t, load())
	for _, text := range []string{"{", `{"version": 99}`, ""} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "record.json"), []byte(text), 0o600))
		require.NotNil(t, load(), text)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "record.json")))
	require.NotNil(t, load())
	assert.Equal(t, "record.json is missing", load().Reason)
}

func TestStoreConforms(t *testing.T) {
	t.Parallel()
	agenttest.TestRecorder(t, func(t *testing.T) (record.Recorder, func() record.Recorder) {
		root := t.TempDir()
		open := func() record.Recorder {
			return New(filepath.Join(root, "lib"), filepath.Join(root, "run"), slog.New(slog.DiscardHandler))
		}
		return open(), open
	})
}

// The files belong to the daemon: a plan reads what it can, and leaves the rest as it is.
func TestReaderWritesNothing(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"missing": "", "cut": `{"version": 1`, "of a newer agent": `{"version": 999}`, "no record": "[]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if text != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, recordFile), []byte(text), 0o600))
			}
			before, err := os.ReadDir(dir)
			require.NoError(t, err)
			r := NewReader(dir)
			got, err := r.Load(t.Context())
			require.NoError(t, err)
			assert.Equal(t, record.Record{Lost: got.Lost}, got)
			assert.Equal(t, text == "", got.Lost == nil)
			require.NoError(t, r.Save(t.Context(), got))
			require.NoError(t, r.Publish(t.Context(), status.Status{}))
			after, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Equal(t, names(before), names(after))
			if text != "" {
				assert.Equal(t, text, content(t, dir, recordFile))
			}
		})
	}
}

func TestReaderReadsTheRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := New(dir, t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, s.Save(t.Context(), record.Record{MinSpace: record.Entries[int64]{"a": 1}}))
	want, err := s.Load(t.Context())
	require.NoError(t, err)
	got, err := NewReader(dir).Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func names(entries []os.DirEntry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// holdVariable makes this test binary an agent that locks the directory lib below its own, reports it, and waits until
// its input ends.
const holdVariable = "STATE_TEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holdVariable) == "" {
		os.Exit(m.Run())
	}
	_, err := New("lib", "run", slog.New(slog.DiscardHandler)).Lock(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestSecondAgentIsKeptOut(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err)
	for _, left := range []string{"", s.stateDir, s.runtimeDir} { // an older agent, or one on a full disk, locks one file only
		if left != "" {
			unlock, err = nodefile.Lock(t.Context(), filepath.Join(left, lockFile), 0)
			require.NoError(t, err)
		}
		_, err = New(s.stateDir, s.runtimeDir, slog.New(slog.DiscardHandler)).Lock(t.Context())
		locked, is := errors.AsType[*nodefile.LockedError](err)
		require.True(t, is, "%v", err)
		assert.Equal(t, os.Getpid(), locked.PID)
		unlock()
	}
	unlock, err = s.Lock(t.Context())
	require.NoError(t, err)
	unlock()
}

// Any user can open the directories and the status, and lock them as `flock -s` does.
func TestAnotherUserKeepsNoAgentOut(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	require.NoError(t, s.Publish(t.Context(), status.Status{}))
	require.NoError(t, s.Save(t.Context(), record.Record{}))
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err)
	unlock()
	locked := 0
	for _, dir := range []string{s.stateDir, s.runtimeDir} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			info, infoErr := entry.Info()
			if err := errors.Join(err, infoErr); err != nil || info.Mode().Perm()&0o004 == 0 {
				return err
			}
			file, err := os.Open(path)
			if err == nil {
				t.Cleanup(func() { _ = file.Close() })
				locked++
				err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH) //nolint:forbidigo // the other user
			}
			return err
		}))
	}
	assert.Equal(t, 4, locked, "two directories and two statuses")
	unlock, err = s.Lock(t.Context())
	require.NoError(t, err)
	unlock()
}

// Not in parallel: between fork and exec a new process of another test has these locks, too.
func TestTheLockEndsWithItsProcess(t *testing.T) { //nolint:paralleltest // see above
	s, _ := newStore(t)
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), holdVariable+"=1")
	other.Dir = filepath.Dir(s.stateDir)
	other.Stderr = os.Stderr
	input, err := other.StdinPipe()
	require.NoError(t, err)
	defer func() { _ = input.Close() }()
	output, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", line)

	_, err = s.Lock(t.Context())
	require.ErrorContains(t, err, "locked by process "+strconv.Itoa(other.Process.Pid))
	require.NoError(t, other.Process.Kill())
	require.Error(t, other.Wait())
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err, "the file that was left says nothing")
	unlock()
}

func TestUnderTheLockCrashedWritesAreSwept(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	require.NoError(t, os.MkdirAll(s.runtimeDir, 0o755))
	const left = ".record.json.image-update-agent-0123456789abcdef"
	put(t, s, left, "")
	put(t, s, ".other", "")
	require.NoError(t, os.WriteFile(filepath.Join(s.runtimeDir, left), nil, 0o600))
	unlock, err := s.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	assert.NoFileExists(t, filepath.Join(s.stateDir, left))
	assert.NoFileExists(t, filepath.Join(s.runtimeDir, left))
	assert.FileExists(t, filepath.Join(s.stateDir, ".other"))
}

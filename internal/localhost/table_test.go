// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var velum = agenttest.OwnHostEntry("caasp/v4/velum", "4.0.0-rev1", "a manifest")

func oneTag() ownhost.Table { return ownhost.Table{Entries: []ownhost.Entry{velum}} }

// saved saves a table below a new directory and returns its path.
func saved(t *testing.T, table ownhost.Table) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, NewStore(dir).Save(t.Context(), table))
	return filepath.Join(dir, TableFile)
}

func TestStoreConforms(t *testing.T) {
	t.Parallel()
	agenttest.TestOwnHost(t, func(t *testing.T) agenttest.OwnHostUnderTest {
		dir := t.TempDir()
		path := filepath.Join(dir, TableFile)
		return agenttest.OwnHostUnderTest{
			Store: NewStore(dir),
			Read: func(t *testing.T) ownhost.Table {
				table, err := ReadTable(path)
				require.NoError(t, err)
				return table
			},
			Written: func(t *testing.T) string {
				info, err := os.Stat(path)
				require.NoError(t, err)
				return nodefile.Stamp(info)
			},
		}
	})
}

// The own host runs as a user of its own, and the daemon has no power over its files, whatever the umask of both.
func TestEverybodyMayReadTheTableAndTheAnswers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lib") // which is not there
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	require.NoError(t, NewStore(dir).Save(t.Context(), oneTag()))
	note(dir, Refused, ownhost.Entry{}, time.Unix(1, 0))
	for _, file := range []string{TableFile, AnswersFile} {
		info, err := os.Stat(filepath.Join(dir, file))
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o644), info.Mode(), file)
	}
}

func TestATableThatCannotBeUsedIsAnError(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile(saved(t, oneTag()))
	require.NoError(t, err)
	edit := func(old, replacement string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, bytes.Replace(good, []byte(old), []byte(replacement), 1), 0o600))
		}
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		want  string
	}{
		"missing": {func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }, "no such file"},
		"empty":   {func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) }, "no JSON of a table"},
		"torn": {func(t *testing.T, path string) {
			require.NoError(t, os.Truncate(path, int64(len(good)/2)))
		}, "no JSON of a table"},
		"longer":           {edit("\n}\n", "\n}\n{}"), "more than a table"},
		"newer":            {edit(`"schemaVersion": 1`, `"schemaVersion": 2`), "version 2, want 1"},
		"without version":  {edit(`"schemaVersion"`, `"version"`), "version 0"},
		"a broken digest":  {edit("sha256:", "sha256:x"), "digest: not sha256"},
		"a foreign owner":  {func(t *testing.T, path string) { require.NoError(t, os.Chown(path, 4711, -1)) }, "owned by user 4711"},
		"others may write": {func(t *testing.T, path string) { require.NoError(t, os.Chmod(path, 0o666)) }, "others may write"},
		"a FIFO": {func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, syscall.Mkfifo(path, 0o600))
		}, "not a regular file"},
		"too large": {func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, maxTable+1)) }, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := saved(t, oneTag())
			c.spoil(t, path)
			table, err := ReadTable(path)
			require.ErrorContains(t, err, c.want)
			assert.Empty(t, table.Entries)
		})
	}
}

// The largest table that may be saved can be read.
func TestTheLargestTableCanBeRead(t *testing.T) {
	t.Parallel()
	var table ownhost.Table
	for i := range ownhost.MaxEntries {
		e := velum
		e.Registry, e.Repository = strings.Repeat("r", ownhost.MaxText), strings.Repeat("&", ownhost.MaxText)
		e.Tag, e.MediaType = fmt.Sprintf("%0*d", ownhost.MaxText, i), strings.Repeat("<", ownhost.MaxText)
		table.Entries = append(table.Entries, e)
	}
	read, err := ReadTable(saved(t, table))
	require.NoError(t, err)
	assert.Equal(t, table, read)
}

func FuzzTable(f *testing.F) {
	data, err := json.Marshal(tableFile{tableVersion, oneTag()})
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"schemaVersion":1,"entries":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := parseTable(data)
		if err != nil {
			require.Empty(t, table.Entries)
			return
		}
		require.NoError(t, NewStore(t.TempDir()).Save(t.Context(), table), "what is read can be saved")
	})
}

func TestAnswersAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	journal := AnswersAt(filepath.Join(dir, AnswersFile))
	none, _, err := journal.Get()
	require.NoError(t, err)
	assert.Empty(t, none.Last)
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for minute, r := range []Result{Served, Unknown, Served, Refused} {
		note(dir, r, velum, noon.Add(time.Duration(minute)*time.Minute))
	}
	got, _, err := journal.Get()
	require.NoError(t, err)
	assert.Equal(t, Answers{
		Served: 2, Unknown: 1, Refused: 1,
		Last: map[string]time.Time{"registry.suse.com/caasp/v4/velum:4.0.0-rev1": noon.Add(2 * time.Minute)},
	}, got)
}

// Anybody on the node may ask as often as he likes.
func TestTheJournalOfAnswersIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, AnswersFile)
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("1 refused\n"), maxAnswers/10+1), 0o600))
	note(dir, Unknown, ownhost.Entry{}, time.Unix(1, 0))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "1 unknown\n", string(data))
}

func TestTheJournalIsNotWrittenThroughASymlink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Symlink("other", filepath.Join(dir, AnswersFile)))
	note(dir, Refused, ownhost.Entry{}, time.Unix(1, 0))
	assert.NoFileExists(t, filepath.Join(dir, "other"))
}

func FuzzAnswers(f *testing.F) {
	f.Add("1 served a/b:c\n99999999999999 served a/b:c\n-1 unknown\n1 refused x\n\x00")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAnswers([]byte(text))
		require.NoError(t, err)
		require.LessOrEqual(t, len(a.Last), ownhost.MaxEntries)
		_, err = json.Marshal(a)
		require.NoError(t, err)
	})
}

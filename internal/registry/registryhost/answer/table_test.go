// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var velum = table.Entry{
	Registry: "registry.suse.com", Repository: "caasp/v4/velum", Tag: "4.0.0-rev1",
	Digest: "sha256:" + strings.Repeat("1", 64), MediaType: "application/vnd.oci.image.manifest.v1+json", Size: 512,
}

func oneTag() table.Table { return table.Table{Entries: []table.Entry{velum}} }

// saved saves a table in a new directory and returns its path.
func saved(t *testing.T, content table.Table) string {
	t.Helper()
	data, err := table.Format(content)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), table.File)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// Each change of the table is reported once.
func TestTableIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	f := tableFile{path: saved(t, oneTag())}
	get := func(want table.Table, wantErr string) {
		t.Helper()
		for _, isFirst := range []bool{true, false} {
			got, changed, err := f.get()
			assert.Equal(t, want, got)
			assert.Equal(t, isFirst, changed || want.Entries == nil && err == nil)
			if assert.Equal(t, wantErr == "", err == nil, err); err != nil {
				assert.ErrorContains(t, err, f.path+": "+wantErr)
			}
			if want.Entries == nil && err == nil {
				return // a missing file is not cached
			}
		}
	}
	get(oneTag(), "")
	require.NoError(t, os.Remove(f.path))
	get(table.Table{}, "")
	require.NoError(t, os.Rename(saved(t, oneTag()), f.path))
	get(oneTag(), "")
	require.NoError(t, os.Chmod(f.path, 0o666))
	get(table.Table{}, "mode 0666: others may write")
	require.NoError(t, os.Chmod(f.path, 0o644))
	get(oneTag(), "")
}

// As for every file whose content the agent acts on, kind, owner, mode and size are checked.
func TestUntrustedTableIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(path string) error
		want  string
	}{
		"a foreign owner":  {func(path string) error { return os.Chown(path, 4711, -1) }, "owned by user 4711"},
		"others may write": {func(path string) error { return os.Chmod(path, 0o602) }, "mode 0602: others may write"},
		"a directory":      {func(path string) error { return replace(path, func() error { return os.Mkdir(path, 0o700) }) }, "not a regular file"},
		"a FIFO":           {func(path string) error { return replace(path, func() error { return syscall.Mkfifo(path, 0o600) }) }, "not a regular file"},
		"too large":        {func(path string) error { return os.Truncate(path, table.MaxFile+1) }, "too large"},
		"torn":             {func(path string) error { return os.Truncate(path, 20) }, "not a table in JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := saved(t, oneTag())
			require.NoError(t, c.spoil(path))
			got, err := read(path)
			require.ErrorContains(t, err, path+": "+c.want)
			assert.Empty(t, got.Entries)
		})
	}
}

func replace(path string, by func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return by()
}

// Any user on the node may send any number of requests.
func TestJournalIsLimited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, JournalFile)
	other := velum
	other.Tag = "other"
	Note(dir, Served, velum, time.Unix(1, 0))
	Note(dir, Served, other, time.Unix(2, 0))
	Note(dir, Served, velum, time.Unix(3, 0))
	for range 3 * MaxJournal / len("4 refused\n") {
		Note(dir, Refused, table.Entry{}, time.Unix(4, 0))
	}
	Note(dir, Unknown, table.Entry{}, time.Unix(5, 0))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(data), MaxJournal+len("5 unknown\n"))
	served := regexp.MustCompile(`(?m)^\d served .*$`).FindAllString(string(data), -1)
	assert.Equal(t, []string{"2 served " + other.Image(), "3 served " + velum.Image()}, served)
	assert.True(t, strings.HasSuffix(string(data), "4 refused\n5 unknown\n"))
	assert.NoFileExists(t, path+".new")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o644), info.Mode())
}

// The latest of very many images stay.
func TestJournalOfManyImagesIsLimited(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for n := range 4000 {
		fmt.Fprintf(&all, "%d served r/x:%d\n", n, n)
	}
	kept := string(lastServed([]byte(all.String() + "5000 served half")))
	assert.LessOrEqual(t, len(kept), MaxJournal/2)
	assert.Greater(t, len(kept), MaxJournal/2-30)
	assert.True(t, strings.HasSuffix(all.String(), kept), "the latest")
}

// Whatever is in its place neither blocks the answers nor is written to.
func TestJournalIsARegularFile(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"a FIFO":             func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a device":           func(path string) error { return os.Symlink("/dev/full", path) },
		"a directory":        func(path string) error { return os.Mkdir(path, 0o700) },
		"a FIFO as the next": func(path string) error { return syscall.Mkfifo(path+".new", 0o600) },
		"a FIFO that has a reader": func(path string) error {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				return err
			}
			reader, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
			if err == nil {
				t.Cleanup(func() {
					_, err := syscall.Read(reader, make([]byte, 1))
					assert.ErrorIs(t, err, syscall.EAGAIN, "nothing was written")
					_ = syscall.Close(reader)
				})
			}
			return err
		},
	} {
		path := saved(t, oneTag())
		dir := filepath.Dir(path)
		require.NoError(t, make(filepath.Join(dir, JournalFile)), name)
		s := NewServer(path, dir, slog.New(slog.DiscardHandler))
		assert.Contains(t, s.respond([]byte(head)), "200 OK", name)
	}
}

// The daemon runs as another user, and reads the journal.
func TestJournalIsReadableByAllUsers(t *testing.T) {
	dir := t.TempDir()
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	Note(dir, Refused, table.Entry{}, time.Unix(1, 0))
	info, err := os.Stat(filepath.Join(dir, JournalFile))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o644), info.Mode())
}

func TestJournalIsNotWrittenThroughASymlink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Symlink("other", filepath.Join(dir, JournalFile)))
	Note(dir, Refused, table.Entry{}, time.Unix(1, 0))
	assert.NoFileExists(t, filepath.Join(dir, "other"))
}

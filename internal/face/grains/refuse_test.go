// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// badFiles are contents that must not be changed, with a word of the error.
var badFiles = map[string]struct{ content, why string }{
	"broken yaml":                {"roles: [admin\n", "line"},
	"not yaml at all":            {"roles:\n- admin\n}{\n", "line"},
	"cut in a quoted string":     {"a: \"b\n", "line"},
	"duplicate foreign key":      {"roles: a\nroles: b\n", "duplicate key"},
	"duplicate nested key":       {"a: {b: 1, b: 2}\n", "duplicate key"},
	"duplicate own key":          {nothingText + "image_update_count: 0\n", "duplicate key"},
	"keys equal in yaml 1.1":     {"yes: 1\non: 2\n", "duplicate key"},
	"a list":                     {"- roles\n", "block mapping"},
	"a scalar":                   {"roles\n", "block mapping"},
	"flow style":                 {"{roles: admin}\n", "block mapping"},
	"indented":                   {"  roles: admin\n", "roles"},
	"a complex key":              {"? roles\n: admin\n", "roles"},
	"several documents":          {"roles: a\n---\nroles: b\n", "second document"},
	"a tab as indentation":       {"roles:\n\t- admin\n", "tab"},
	"a tab behind a colon":       {"roles:\tadmin\n", "tab"},
	"an anchor on our value":     {"image_update_state: &x \"current\"\na: *x\n", "anchor"},
	"an anchor within our value": {"image_updates: [&x a]\n", "anchor"},
	"an anchor on our key":       {"&x image_update_state: a\n", "anchor"},
	"an alias as our value":      {"a: &x b\nimage_update_state: *x\n", "anchor"},
	"a tag on our key":           {"!!str image_update_state: a\n", "anchor"},
	"one anchor twice":           {"a: &x b\nc: [&x d]\n", "line 2: duplicate anchor &x, first on line 1"},
	"an alias to itself":         {"a: &x [*x]\n", "alias"},
	"an unknown tag":             {"a: !include b\n", "tag"},
	"an object":                  {"a: !!python/object:x {}\n", "tag"},
	"a tag that cannot be":       {"!!str\na: b\n", "tag"},
	"a number of nothing":        {"a: 0_\n", "without a digit"},
	"zeros of nothing":           {"a: [00__]\n", "without a digit"},
	"bits of nothing":            {"-0b_: a\n", "without a digit"},
	"a date that is none":        {"a: 2026-02-30\n", "line 1: not a date: 2026-02-30"},
	"a month that is none":       {"a: [2026-13-01]\n", "not a date"},
	"a date of year 0":           {"0000-01-01: a\n", "not a date"},
	"a time that is none":        {"a: 2026-02-28 24:00:00\n", "not a date"},
	"a zone that is none":        {"a: 2026-02-28T10:00:00+24:00\n", "not a date"},
	"a value sign":               {"a: =\n", "tag"},
	"a merge sign as a value":    {"a: [<<]\n", "tag"},
	"a merge of more keys":       {"<<: {update_in_progress: true}\n", "a merge"},
	"a closed document":          {"roles: a\n...\n", "document"},
	"an open block text":         {"a: |\n  text", "edited file"},
	"utf-16":                     {"\xff\xfea\x00:\x00 \x00b\x00", "UTF-16"},
	"no utf-8":                   {"a: \xff\n", "UTF-8"},
	"breaks of old macs":         {"a: b\rc: d\r", "line break"},
	"a break of unicode":         {"a: b\u2028c: d\n", "line break"},
	"a break within a comment":   {"# a\rb: c\n", "line break"},
	"a touching comment":         {"a: |# c\n", "comment"},
	"an inner byte order mark":   {"\n\ufeffa: b\n", "byte order mark"},
	"a control character":        {"a: \x07\n", "control character"},
	"a nul byte":                 {"a: b\x00\n", "control character"},
	"too deep":                   {"a: " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "\n", "nested deeper"},
	"too large":                  {"a: b\n" + strings.Repeat("# comment\n", 110_000), "too large"},
	"too large with our keys":    {"a: b\n# " + strings.Repeat("c", 1<<20-10) + "\n", "larger"},
}

func TestAnnounceKeepsABadFile(t *testing.T) {
	t.Parallel()
	for name, bad := range badFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, bad.content)
			before := n.state(t)
			changed, err := n.store.Announce(t.Context(), staged)
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, bad.why)
			require.ErrorContains(t, err, n.path)
			require.False(t, changed)
			require.Equal(t, before, n.state(t))
		})
	}
}

// unsafeFiles are things in place of the file.
var unsafeFiles = map[string]func(t *testing.T, path string){
	"directory": func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o755)) },
	"symlink": func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path+".real", nil, 0o644))
		require.NoError(t, os.Symlink(path+".real", path))
	},
	"fifo": func(t *testing.T, path string) { require.NoError(t, syscall.Mkfifo(path, 0o644)) },
	"socket": func(t *testing.T, path string) {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	},
	"world-writable": func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path, []byte("a: b\n"), 0o644))
		require.NoError(t, os.Chmod(path, 0o666))
	},
	"foreign-owned": func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path, []byte("a: b\n"), 0o644))
		require.NoError(t, os.Chown(path, 4711, 0))
	},
	"world-writable directory": func(t *testing.T, path string) {
		require.NoError(t, os.Chmod(filepath.Dir(path), 0o777))
	},
}

func TestAnnounceKeepsAnUnsafeFile(t *testing.T) {
	t.Parallel()
	for name, make := range unsafeFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := emptyNode(t)
			make(t, n.path)
			before := n.state(t)
			_, err := n.store.Announce(t.Context(), staged)
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorIs(t, err, nodefile.ErrUnsafe)
			_, err = n.store.Busy(t.Context())
			require.ErrorIs(t, err, ErrRefused)
			require.Equal(t, before, n.state(t))
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// saltsPath is salt-minion's default path.
const saltsPath = "/etc/salt/grains"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// nothing is the grain without offers; staged has two updates.
var (
	nothing = Grain{State: "current"}
	staged  = Grain{Available: true, State: "staged", Count: 2, Updates: []Update{
		{Image: "registry.suse.com/caasp/v4/velum", Change: "rebuild", From: "4.0.0-rev1-build1.3", To: "4.0.0-rev1-build1.5", Digest: digest},
		{Image: "registry.suse.com/caasp/v4/haproxy", Change: "convert", From: "1.6", To: "1.6.11-rev2", Digest: digest},
	}}
)

const (
	nothingText = `image_update_available: false
image_update_state: "current"
image_update_count: 0
image_updates: []
`
	stagedText = `image_update_available: true
image_update_state: "staged"
image_update_count: 2
image_updates:
- image: "registry.suse.com/caasp/v4/haproxy"
  change: "convert"
  from: "1.6"
  to: "1.6.11-rev2"
  digest: "` + digest + `"
- image: "registry.suse.com/caasp/v4/velum"
  change: "rebuild"
  from: "4.0.0-rev1-build1.3"
  to: "4.0.0-rev1-build1.5"
  digest: "` + digest + `"
`
)

// node is a root directory with a grains file and its Store.
type node struct {
	root, path string
	store      *Store
}

func newNode(t *testing.T, content string) node {
	t.Helper()
	n := emptyNode(t)
	require.NoError(t, os.WriteFile(n.path, []byte(content), 0o644))
	return n
}

// emptyNode has /etc/salt, but no grains file.
func emptyNode(t *testing.T) node {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/salt"), 0o755))
	return node{root: root, path: filepath.Join(root, saltsPath), store: New(root, filepath.Join(root, saltsPath), slog.New(slog.DiscardHandler))}
}

func (n node) content(t require.TestingT) string {
	data, err := os.ReadFile(n.path)
	require.NoError(t, err)
	return string(data)
}

// state returns everything that a rejected edit must not change.
func (n node) state(t require.TestingT) []string {
	entries, err := os.ReadDir(filepath.Dir(n.path))
	require.NoError(t, err)
	var state []string
	for _, entry := range entries {
		info, err := entry.Info()
		require.NoError(t, err)
		state = append(state, entry.Name(), info.Mode().String(), info.ModTime().String())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(filepath.Join(filepath.Dir(n.path), entry.Name()))
			require.NoError(t, err)
			state = append(state, string(data))
		}
	}
	return state
}

func TestSweepRemovesTemporaryFilesOfACrash(t *testing.T) {
	t.Parallel()
	n := newNode(t, "roles: [admin]\n")
	before := n.state(t)
	left := filepath.Join(filepath.Dir(n.path), ".grains.image-update-agent-0123456789abcdef")
	require.NoError(t, os.WriteFile(left, []byte("roles: [ad"), 0o600))
	require.NoError(t, n.store.Sweep(t.Context()))
	assert.Equal(t, before, n.state(t))

	require.NoError(t, os.RemoveAll(filepath.Dir(n.path)))
	require.NoError(t, n.store.Sweep(t.Context()), "no Salt, nothing to sweep")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, n.store.Sweep(ctx), context.Canceled)
}

// edits are grains files and the result of announcing staged.
var edits = map[string]struct{ before, after string }{
	"caasp's own":            {"roles:\n- kube-master\n", "roles:\n- kube-master\n" + stagedText},
	"empty":                  {"", stagedText},
	"the last grain deleted": {"{}\n", stagedText},
	"null":                   {"null\n", stagedText},
	"a comment":              {"# ours\n", "# ours\n" + stagedText},
	"a document mark":        {"---\n", "---\n" + stagedText},
	"no final newline":       {"---\nroles: [admin]", "---\nroles: [admin]\n" + stagedText},
	"crlf":                   {"roles:\r\n- admin\r\n", "roles:\r\n- admin\r\n" + strings.ReplaceAll(stagedText, "\n", "\r\n")},
	"crlf, no final newline": {"a: 1\r\nroles: x", "a: 1\r\nroles: x\r\n" + strings.ReplaceAll(stagedText, "\n", "\r\n")},
	"byte order mark":        {"\ufeffroles: x\n", "\ufeffroles: x\n" + stagedText},
	"nothing was offered": {
		"roles:\n  - admin   # here\n\n" + nothingText + "\n# last\nz: 1\n",
		"roles:\n  - admin   # here\n\n" + stagedText + "\n# last\nz: 1\n",
	},
	"dumped by salt": {
		"a: 1\nimage_update_available: false\nimage_update_count: 0\nimage_update_state: current\nimage_updates: []\nroles:\n- admin\n",
		"a: 1\nimage_update_available: true\nimage_update_count: 2\nimage_update_state: \"staged\"\n" +
			stagedText[strings.Index(stagedText, "image_updates:"):] + "roles:\n- admin\n",
	},
	"our keys apart, in other shapes": {
		"'image_update_count' : 1 # one\na: 1\nimage_updates: [\n  {image: x, change: y},\n ]\nb: |\n  image_update_state: text\nimage_update_state: >-\n  x\n\n  y\nc: {image_update_count: 7}\nimage_update_available:\n",
		"image_update_count: 2\na: 1\n" + stagedText[strings.Index(stagedText, "image_updates:"):] +
			"b: |\n  image_update_state: text\nimage_update_state: \"staged\"\nc: {image_update_count: 7}\nimage_update_available: true\n",
	},
	"foreign anchors": {"a: &x {b: 1}\nc: *x\n", "a: &x {b: 1}\nc: *x\n" + stagedText},
	"a value that salt would read as a number": {
		strings.Replace(stagedText, `from: "1.6"`, "from: 1.6", 1), stagedText,
	},
	"a tab in a comment": {"# a\tb\nc: d # e\tf\n", "# a\tb\nc: d # e\tf\n" + stagedText},
}

func TestAnnounceEditsOnlyTheAgentsLines(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, edit.before)
			changed, err := n.store.Announce(t.Context(), staged)
			require.NoError(t, err)
			require.True(t, changed)
			require.Equal(t, edit.after, n.content(t))
			requireReadsAs(t, salt, edit.before, edit.after, staged)

			before := n.state(t)
			changed, err = n.store.Announce(t.Context(), staged)
			require.NoError(t, err)
			require.False(t, changed)
			require.Equal(t, before, n.state(t))
		})
	}
}

// requireReadsAs checks with both of Salt's possible parsers that the file has the grain and that the foreign grains
// are unchanged.
func requireReadsAs(t require.TestingT, salt *salt, before, after string, g Grain) {
	oldLib, oldPure := salt.load(t, []byte(before))
	newLib, newPure := salt.load(t, []byte(after))
	_, foreign := oldLib.split(t)
	for _, r := range []reading{oldPure, newLib, newPure} {
		_, same := r.split(t)
		require.Equal(t, foreign, same)
	}
	for _, r := range []reading{newLib, newPure} {
		own, _ := r.split(t)
		requireSays(t, g, own)
	}
}

// A file that Salt has dumped again has the same meaning in another spelling.
func TestAnnounceAcceptsAnotherSpellingOfSalt(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	n := newNode(t, "roles:\n- admin\n"+stagedText)
	require.Empty(t, salt.setval(t, n.path, "tx_update_reboot_needed", true))
	require.NotContains(t, n.content(t), stagedText, "salt sorts and unquotes")
	before := n.state(t)
	changed, err := n.store.Announce(t.Context(), staged)
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, before, n.state(t))
}

func TestAnnounceBoundsAndSortsTheUpdates(t *testing.T) {
	t.Parallel()
	many := Grain{Available: true, State: "staged", Count: 100}
	for i := range 100 {
		many.Updates = append(many.Updates, Update{Image: "r/" + string(rune('a'+(i*37)%26)) + strings.Repeat("x", (i*37)%100)})
	}
	n := newNode(t, "")
	changed, err := n.store.Announce(t.Context(), many)
	require.NoError(t, err)
	require.True(t, changed)
	var images []string
	for line := range strings.Lines(n.content(t)) {
		if image, ok := strings.CutPrefix(line, "- image: "); ok {
			images = append(images, image)
		}
	}
	assert.Len(t, images, MaxUpdates)
	assert.IsNonDecreasing(t, images)
	assert.Contains(t, n.content(t), "image_update_count: 100\n")
	changed, err = n.store.Announce(t.Context(), many)
	require.NoError(t, err)
	require.False(t, changed)
}

// badTexts are strings that are in no tag, digest or repository.
var badTexts = []string{"a\nb", "a\x00", "ä", `a"b`, `a\b`, "u'1'", "\u2028", "\xff", strings.Repeat("x", maxText+1)}

func TestAnnounceRefusesTextThatNeedsEscapes(t *testing.T) {
	t.Parallel()
	n := newNode(t, "roles: x\n")
	before := n.state(t)
	for _, text := range badTexts {
		for _, g := range []Grain{
			{State: text},
			{Updates: []Update{{Image: text}}},
			{Updates: []Update{{Change: text}}},
			{Updates: []Update{{From: text}}},
			{Updates: []Update{{To: text}}},
			{Updates: []Update{{Digest: text}}},
		} {
			_, err := n.store.Announce(t.Context(), g)
			require.Error(t, err, "%q", text)
			require.NotContains(t, err.Error(), strings.Repeat("x", maxText))
		}
	}
	require.Equal(t, before, n.state(t))
}

func TestAnnounceKeepsModeAndOwner(t *testing.T) {
	t.Parallel()
	n := newNode(t, "roles: x\n")
	require.NoError(t, os.Chmod(n.path, 0o640))
	require.NoError(t, os.Chown(n.path, 0, 42))
	_, err := n.store.Announce(t.Context(), staged)
	require.NoError(t, err)
	info, err := os.Stat(n.path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o640), info.Mode())
	assert.Equal(t, uint32(42), info.Sys().(*syscall.Stat_t).Gid)
}

// busyFiles map files to their busy grain, "" for none.
var busyFiles = map[string]string{
	"update_in_progress: true\n":                               "update_in_progress",
	"roles: x\nupdate_in_progress: True\n":                     "update_in_progress",
	"update_in_progress: yes\n":                                "update_in_progress",
	"update_in_progress: \"true\"\n":                           "update_in_progress",
	"migration_in_progress: TRUE\n":                            "migration_in_progress",
	"removal_in_progress: on\n":                                "removal_in_progress",
	"node_removal_in_progress: 'True'\n":                       "node_removal_in_progress",
	"a: &x true\nnode_removal_in_progress: *x\n":               "node_removal_in_progress",
	"update_in_progress: false\nremoval_in_progress: true\n":   "removal_in_progress",
	"update_in_progress: false\n":                              "",
	"update_in_progress:\n":                                    "",
	"update_in_progress: \"yes\"\n":                            "",
	"a: {update_in_progress: true}\n":                          "",
	"x_update_in_progress: true\nupdate_in_progress_x: true\n": "",
	"update_in_progress: [false, true]\n":                      "update_in_progress",
	"update_in_progress: {'true': x}\n":                        "update_in_progress",
	"update_in_progress: {x: true}\n":                          "",
	"update_in_progress: [[true]]\n":                           "",
	"":                                                         "",
}

func TestABusyClusterHoldsTheGrain(t *testing.T) {
	t.Parallel()
	for content, reason := range busyFiles {
		t.Run(strings.ReplaceAll(content, "\n", ";"), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, content)
			busy, err := n.store.Busy(t.Context())
			require.NoError(t, err)
			require.Equal(t, reason, busy)
			before := n.state(t)
			changed, err := n.store.Announce(t.Context(), staged)
			if reason == "" {
				require.NoError(t, err)
				require.True(t, changed)
				return
			}
			require.ErrorIs(t, err, ErrHeld)
			require.ErrorContains(t, err, reason)
			require.False(t, changed)
			require.Equal(t, before, n.state(t))
		})
	}
}

func TestNoGrainsWithoutSalt(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	store := New(root, filepath.Join(root, saltsPath), slog.New(slog.DiscardHandler))
	changed, err := store.Announce(t.Context(), staged)
	require.ErrorIs(t, err, ErrNoSalt)
	require.False(t, changed)
	busy, err := store.Busy(t.Context())
	require.NoError(t, err)
	require.Empty(t, busy)
	require.NoFileExists(t, filepath.Join(root, "etc"))
}

// newFiles map the node's unit files to whether a missing grains file is created.
var newFiles = map[string]struct {
	units  []string // a trailing "@" makes a link to /dev/null, that is, a mask
	create bool
}{
	"salt in a pod":    {nil, true},
	"minion enabled":   {[]string{"usr/lib/systemd/system/salt-minion.service", "etc/systemd/system/multi-user.target.wants/salt-minion.service"}, true},
	"minion required":  {[]string{"usr/lib/systemd/system/salt-minion.service", "etc/systemd/system/caasp.target.requires/salt-minion.service"}, true},
	"minion disabled":  {[]string{"usr/lib/systemd/system/salt-minion.service"}, false},
	"own unit":         {[]string{"etc/systemd/system/salt-minion.service"}, false},
	"minion masked":    {[]string{"usr/lib/systemd/system/salt-minion.service", "etc/systemd/system/salt-minion.service@", "etc/systemd/system/multi-user.target.wants/salt-minion.service"}, false},
	"another's wishes": {[]string{"usr/lib/systemd/system/salt-minion.service", "etc/systemd/system/multi-user.target.wants/salt-master.service"}, false},
}

func TestAMissingFileIsCreatedWhereSaltIsInUse(t *testing.T) {
	t.Parallel()
	for name, wanted := range newFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := emptyNode(t)
			for _, unit := range wanted.units {
				path, masked := strings.CutSuffix(filepath.Join(n.root, unit), "@")
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				if masked {
					require.NoError(t, os.Symlink("/dev/null", path))
					continue
				}
				require.NoError(t, os.WriteFile(path, nil, 0o644))
			}
			changed, err := n.store.Announce(t.Context(), nothing)
			require.Equal(t, wanted.create, changed)
			if !wanted.create {
				require.ErrorIs(t, err, ErrNoSalt)
				require.NoFileExists(t, n.path)
				return
			}
			require.NoError(t, err)
			require.Equal(t, nothingText, n.content(t))
			info, err := os.Stat(n.path)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o644), info.Mode())
		})
	}
}

func TestADeletedFileIsNotCreatedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, "roles: x\n")
	_, err := n.store.Busy(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.Remove(n.path))
	_, err = n.store.Announce(t.Context(), staged)
	require.ErrorIs(t, err, ErrNoSalt)
	require.NoFileExists(t, n.path)
}

func TestCanceledAnnounceWritesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t, "roles: [\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := n.state(t)
	_, err := n.store.Announce(ctx, staged)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, n.state(t))
}

// A grain has as many fixes as fit, each whole, and without a catalog no field for them.
func TestFixesThatFit(t *testing.T) {
	t.Parallel()
	assert.Empty(t, fitting(nil))
	assert.Equal(t, "CVE-2026-1 bsc#2", fitting([]string{"CVE-2026-1", "bsc#2"}))
	many := fitting(strings.Fields(strings.Repeat("CVE-2026-12345 ", 100)))
	assert.LessOrEqual(t, len(many), maxText)
	assert.Greater(t, len(many), maxText-20)
	assert.True(t, strings.HasSuffix(many, "CVE-2026-12345"), many)
	g, err := Grain{State: "staged", Updates: []Update{{Image: "a"}, {Image: "b", Severity: "low", Fixes: many}}}.normalized()
	require.NoError(t, err)
	lines := itemLines(keyUpdates, updateFields, g.Updates)
	assert.Equal(t, 1, strings.Count(lines, "severity: \"low\""), lines)
	assert.Equal(t, 1, strings.Count(lines, "fixes: "), lines)
}

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

const failedReason = "velum-public.yaml: velum is not ready: GET http://127.0.0.1:80/: 503 Service Unavailable; " +
	"rolled back to sha256:e3b0c44298fc1c14, which runs well"

var reasons = map[string]struct{ text, want string }{
	"none":                 {"", ""},
	"as it is":             {failedReason, failedReason},
	"only space":           {" \n\t", ""},
	"several lines":        {"  a:\r\n\tb\n\nc\u2028d\u0085e  ", "a: b c d e"},
	"control characters":   {"a\x00b\x1b[31mc\x7f", "ab[31mc"},
	"quotes and backslash": {`u'x' "y" \z`, "u`x` `y` `z"},
	"no comment":           {"a |# b #1", "a | b 1"},
	"letters":              {"größe 3 €", "größe 3 €"},
	"beyond the plane":     {"a\U0001f600b", "ab"},
	"no utf-8":             {"a\xff\xfeb\ufffd", "ab"},
	"invisible":            {"a\ufeff\u200b\u00adb", "ab"},
	"long":                 {strings.Repeat("a", 201), strings.Repeat("a", 200)},
	"long, two bytes":      {"a" + strings.Repeat("é", 100), "a" + strings.Repeat("é", 99)},
	"long, three bytes":    {"a" + strings.Repeat("€", 100), "a" + strings.Repeat("€", 66)},
	"long, ends in space":  {strings.Repeat("a", 199) + " b", strings.Repeat("a", 199)},
}

func TestReasonIsOneBoundedLine(t *testing.T) {
	t.Parallel()
	for name, tc := range reasons {
		assert.Equal(t, tc.want, reason(tc.text), name)
	}
}

func TestPropertyReason(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		got := reason(rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.RuneFrom(reasonRunes), 0, 300, -1)).Draw(t, "text"))
		require.LessOrEqual(t, len(got), maxReason)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "\n")
		require.Equal(t, got, reason(got))
	})
}

// The key is added and removed with the reason; a file of an older agent has none.
func TestAnnounceSaysTheReason(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	for _, before := range []string{"", nothingText, "roles: x\n" + nothingText + "# end\n", "image_update_reason: old\nroles: x\n"} {
		n := newNode(t, before)
		failed := nothing
		failed.State, failed.Reason = "failed", "a\n"+failedReason
		_, err := n.store.Announce(t.Context(), failed)
		require.NoError(t, err)
		after := n.content(t)
		requireReadsAs(t, salt, before, after, failed)
		assert.Contains(t, "\n"+after, "\nimage_update_reason: \"a "+failedReason+"\"\n", "%q", before)
		state := n.state(t)
		changed, err := n.store.Announce(t.Context(), failed)
		require.NoError(t, err)
		assert.False(t, changed)
		assert.Equal(t, state, n.state(t))

		_, err = n.store.Announce(t.Context(), nothing)
		require.NoError(t, err)
		assert.NotContains(t, n.content(t), "reason")
		requireReadsAs(t, salt, before, n.content(t), nothing)
		changed, err = n.store.Announce(t.Context(), nothing)
		require.NoError(t, err)
		assert.False(t, changed)
	}
}

func TestAnnounceSaysTheReasonBehindTheState(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	_, err := n.store.Announce(t.Context(), Grain{State: "held", Reason: "disk"})
	require.NoError(t, err)
	assert.Equal(t, strings.Replace(nothingText, "\"current\"\n", "\"held\"\nimage_update_reason: \"disk\"\n", 1), n.content(t))
}

// Salt wraps long lines.
func TestAnnounceAcceptsAnotherSpellingOfTheReason(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	for _, text := range []string{failedReason, "größe: €", "yes", "1.6", "- a: b"} {
		failed := nothing
		failed.Reason = text
		n := newNode(t, "roles:\n- admin\n")
		_, err := n.store.Announce(t.Context(), failed)
		require.NoError(t, err)
		require.Empty(t, salt.setval(t, n.path, "a", true))
		require.NotContains(t, n.content(t), `"`+text+`"`)
		changed, err := n.store.Announce(t.Context(), failed)
		require.NoError(t, err)
		assert.False(t, changed, text)
	}
}

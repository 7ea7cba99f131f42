// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
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
	return node{root: root, path: filepath.Join(root, saltsPath), store: New(root, saltsPath, slog.New(slog.DiscardHandler))}
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

func TestAnnounceWithoutOffers(t *testing.T) {
	t.Parallel()
	n := newNode(t, "roles: x\n"+stagedText)
	changed, err := n.store.Announce(t.Context(), nothing)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "roles: x\n"+nothingText, n.content(t))
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
	store := New(root, saltsPath, slog.New(slog.DiscardHandler))
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

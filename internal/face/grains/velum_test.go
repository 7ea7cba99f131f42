// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// claims are the reboot data in a file, the waiting updates, and the wanted data.
var claims = map[string]struct {
	now     reboot
	waiting []string
	want    reboot
}{
	"nothing at all":                       {reboot{}, nil, reboot{}},
	"an update begins to wait":             {reboot{}, []string{"a"}, reboot{needed: true, asked: []string{"a"}}},
	"it waits on":                          {reboot{needed: true, asked: []string{"a"}}, []string{"a"}, reboot{needed: true, asked: []string{"a"}}},
	"another one comes":                    {reboot{needed: true, asked: []string{"a"}}, []string{"a", "b"}, reboot{needed: true, asked: []string{"a", "b"}}},
	"one of two is applied":                {reboot{needed: true, asked: []string{"a", "b"}}, []string{"b"}, reboot{needed: true, asked: []string{"b"}}},
	"the last is applied, or it is off":    {reboot{needed: true, asked: []string{"a"}}, nil, reboot{}},
	"somebody else's, nothing waits":       {reboot{needed: true}, nil, reboot{needed: true}},
	"somebody else's, an update waits":     {reboot{needed: true}, []string{"a"}, reboot{needed: true}},
	"somebody else's after ours was done":  {reboot{needed: true, done: []string{"a"}}, []string{"a", "b"}, reboot{needed: true, done: []string{"a"}}},
	"the reboot was, and it waits on":      {reboot{asked: []string{"a"}}, []string{"a"}, reboot{done: []string{"a"}}},
	"the reboot was, nothing waits":        {reboot{asked: []string{"a"}}, nil, reboot{}},
	"the reboot was, a newer one waits":    {reboot{asked: []string{"a"}}, []string{"a", "b"}, reboot{needed: true, asked: []string{"a", "b"}, done: []string{"a"}}},
	"done, waits on":                       {reboot{done: []string{"a"}}, []string{"a"}, reboot{done: []string{"a"}}},
	"done, one of two waits on":            {reboot{done: []string{"a", "b"}}, []string{"b"}, reboot{done: []string{"b"}}},
	"done, and off":                        {reboot{done: []string{"a"}}, nil, reboot{}},
	"asked, only what was done waits":      {reboot{needed: true, asked: []string{"a", "b"}, done: []string{"a"}}, []string{"a"}, reboot{done: []string{"a"}}},
	"asked, and the list is not ours":      {reboot{needed: true, asked: []string{}}, nil, reboot{}},
	"asked for nothing, and an update":     {reboot{needed: true, asked: []string{}}, []string{"a"}, reboot{needed: true, asked: []string{"a"}}},
	"a second reboot brought the newer it": {reboot{asked: []string{"a", "b"}, done: []string{"a"}}, []string{"a", "b"}, reboot{done: []string{"a", "b"}}},
}

func TestDecideReboot(t *testing.T) {
	t.Parallel()
	for name, c := range claims {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.now.decide(c.waiting)
			assert.Equal(t, c.want, got)
			assert.Equal(t, got, got.decide(c.waiting), "the same again")
		})
	}
}

// asking returns staged for a node with an unmodified Velum; both updates have one digest.
func asking() Grain {
	g := staged
	g.Velum = true
	return g
}

const (
	askedText = rebootLine + keyAsked + ":\n- \"e3b0c44298fc\"\n"
	doneText  = keyDone + ":\n- \"e3b0c44298fc\"\n"
)

// reboots are grains files, and the results with and without Velum's setting. The agent's other keys precede.
var reboots = map[string]struct{ before, on, off string }{
	"no key":                        {"", askedText, ""},
	"false, as the admin's script":  {"tx_update_reboot_needed: false\n", askedText, "tx_update_reboot_needed: false\n"},
	"a string false":                {"tx_update_reboot_needed: 'False'\n", askedText, "tx_update_reboot_needed: 'False'\n"},
	"null":                          {"tx_update_reboot_needed:\n", askedText, "tx_update_reboot_needed:\n"},
	"true, of transactional-update": {"tx_update_reboot_needed: true\n", "tx_update_reboot_needed: true\n", "tx_update_reboot_needed: true\n"},
	"a string true":                 {"tx_update_reboot_needed: 'true'\n", "tx_update_reboot_needed: 'true'\n", "tx_update_reboot_needed: 'true'\n"},
	"something odd":                 {"tx_update_reboot_needed: [maybe]\n", "tx_update_reboot_needed: [maybe]\n", "tx_update_reboot_needed: [maybe]\n"},
	"an anchor":                     {"tx_update_reboot_needed: &x false\ny: *x\n", "tx_update_reboot_needed: &x false\ny: *x\n", "tx_update_reboot_needed: &x false\ny: *x\n"},
	"an anchor of the key": {
		"&x tx_update_reboot_needed: false\ny: *x\n", "&x tx_update_reboot_needed: false\ny: *x\n", "&x tx_update_reboot_needed: false\ny: *x\n",
	},
	"an anchor over ours":            {"image_update_reboot_asked:\n- x\ntx_update_reboot_needed: &x true\n", "tx_update_reboot_needed: &x true\n", "tx_update_reboot_needed: &x true\n"},
	"ours":                           {askedText, askedText, ""},
	"ours, dumped by Salt":           {"image_update_reboot_asked:\n- e3b0c44298fc\ntx_update_reboot_needed: true\n", keyAsked + ":\n- \"e3b0c44298fc\"\n" + rebootLine, ""},
	"ours, for another update":       {strings.ReplaceAll(askedText, "e3b0", "ffff"), askedText, ""},
	"transactional-update over ours": {strings.Replace(askedText, " # set by image-update-agent", "", 1), "tx_update_reboot_needed: true\n", "tx_update_reboot_needed: true\n"},
	"the script over ours":           {strings.Replace(askedText, "true # set by image-update-agent", "false", 1), "tx_update_reboot_needed: false\n" + doneText, "tx_update_reboot_needed: false\n"},
	"Salt after the reboot":          {"image_update_reboot_asked:\n- e3b0c44298fc\n", doneText, ""},
	"done":                           {doneText, doneText, ""},
	"done, then transactional-update's": {
		doneText + "tx_update_reboot_needed: true\n", doneText + "tx_update_reboot_needed: true\n", "tx_update_reboot_needed: true\n",
	},
	"done for another": {strings.ReplaceAll(doneText, "e3b0", "ffff"), askedText, ""},
	"asked, no list":   {rebootLine + keyAsked + ": yes\n", askedText, ""},
	"one of the same end": {
		"x_tx_update_reboot_needed: true\n", "x_tx_update_reboot_needed: true\n" + askedText, "x_tx_update_reboot_needed: true\n",
	},
	"no final newline": {
		strings.TrimSuffix(keyAsked+":\n- \"e3b0c44298fc\"\n"+rebootLine, "\n"), strings.TrimSuffix(keyAsked+":\n- \"e3b0c44298fc\"\n"+rebootLine, "\n"), "",
	},
}

func TestRebootRequestAndWithdrawal(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	for name, c := range reboots {
		t.Run(name, func(t *testing.T) {
			for _, step := range []struct {
				grain Grain
				want  string
			}{{asking(), c.on}, {staged, c.off}} {
				n := newNode(t, stagedText+c.before)
				_, err := n.store.Announce(t.Context(), step.grain)
				require.NoError(t, err)
				assert.Equal(t, stagedText+step.want, n.content(t))
				libyaml, pure := salt.load(t, []byte(n.content(t)))
				require.Empty(t, libyaml.Error+pure.Error)
				changed, err := n.store.Announce(t.Context(), step.grain)
				require.NoError(t, err)
				assert.False(t, changed, "the same again")
			}
			n := newNode(t, "roles: x\n"+c.before)
			require.NoError(t, n.store.Withdraw(t.Context()))
			assert.Equal(t, "roles: x\n"+c.off, n.content(t), "the others' keys and our own stay")
		})
	}
}

// While the cluster's own update runs, only Salt uses its key.
func TestRebootWaitsForOthers(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"update_in_progress: true\n", "update_in_progress: true\n" + askedText} {
		n := newNode(t, before)
		_, err := n.store.Announce(t.Context(), asking())
		require.ErrorIs(t, err, ErrHeld)
		require.ErrorIs(t, n.store.Withdraw(t.Context()), ErrHeld)
		assert.Equal(t, before, n.content(t))
	}
}

func TestWithdrawMakesNoFile(t *testing.T) {
	t.Parallel()
	n := emptyNode(t)
	require.NoError(t, n.store.Withdraw(t.Context()))
	assert.NoFileExists(t, n.path)
}

// shared is a grains file with all its writers, as in their sources, and who wants a reboot. A snapshot's content
// returns with it.
type shared struct {
	file   string
	others bool // transactional-update wants one
	// Who has written since the agent's last cycle. Only the case of both cannot be distinguished.
	dumped, marked bool
}

var rebootRegexp = regexp.MustCompile(`tx_update_reboot_needed:.*`)

// sed is transactional-update's edit; with appends, the way for a missing key.
func (s *shared) sed(value string, appends bool) {
	line := "tx_update_reboot_needed: " + value
	switch {
	case strings.Contains(s.file, "tx_update_reboot_needed:"):
		s.file = rebootRegexp.ReplaceAllString(s.file, line)
	case appends:
		s.file += line + "\n"
	}
}

// In any order of cycles, settings, other writers and rollbacks of the system, transactional-update's request stays,
// and without it a reboot is requested only for waiting updates.
func TestPropertyRebootRequestsOfOthersStay(t *testing.T) {
	t.Parallel()
	salt := startSalt(t)
	n := newNode(t, "")
	rapid.Check(t, func(t *rapid.T) {
		s := shared{file: "roles: x\n"}
		snapshots := []shared{s}
		var waiting []string
		on := true
		announce := func(t *rapid.T) {
			g := Grain{State: "staged", Velum: on}
			for _, id := range waiting {
				g.Updates = append(g.Updates, Update{Image: "i", Digest: "sha256:" + id})
			}
			require.NoError(t, os.WriteFile(n.path, []byte(s.file), 0o600))
			_, err := n.store.Announce(t.Context(), g)
			require.NoError(t, err)
			s.file, s.dumped, s.marked = n.content(t), false, false
			needed := strings.Contains(s.file, "tx_update_reboot_needed: true")
			if s.others {
				require.True(t, needed, "transactional-update's is gone:\n%s", s.file)
			}
			if needed && !s.others {
				require.True(t, on && len(waiting) > 0, "nobody wants it:\n%s", s.file)
				require.Contains(t, s.file, rebootLine)
				require.Contains(t, s.file, listLines(keyAsked, waiting))
			}
		}
		// grains.setval, as Salt does it: everything is written again, sorted, without comments.
		dump := func(t *rapid.T) {
			if s.marked {
				announce(t)
			}
			require.NoError(t, os.WriteFile(n.path, []byte(s.file), 0o600))
			require.Empty(t, salt.setval(t, n.path, "mine", rapid.IntRange(0, 9).Draw(t, "mine")))
			s.file, s.dumped = n.content(t), true
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {},
			"updates": func(t *rapid.T) {
				waiting = slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"aaaaaaaaaaaa", "bbbbbbbbbbbb", "111111111111"}), 0, 3, rapid.ID).Draw(t, "waiting")))
			},
			"setting": func(t *rapid.T) { on = rapid.Bool().Draw(t, "on") },
			"cycle":   announce,
			"transactional-update": func(t *rapid.T) {
				if s.dumped {
					announce(t)
				}
				s.sed("true", true)
				s.others, s.marked = true, true
			},
			"setval": dump,
			"delval": func(t *rapid.T) {
				s.file = regexp.MustCompile(`(?m)^tx_update_reboot_needed:.*\n`).ReplaceAllString(s.file, "")
				s.others = false
				dump(t)
			},
			"admin boots":   func(*rapid.T) { s.sed("false", false); s.others = false },
			"snapshot":      func(*rapid.T) { snapshots = append(snapshots, s) },
			"rolled back":   func(t *rapid.T) { s = rapid.SampledFrom(snapshots).Draw(t, "to") },
			"grains delkey": func(*rapid.T) { s.file, s.others = "roles: x\n", false },
		})
		announce(t)
		file := s.file
		announce(t)
		require.Equal(t, file, s.file)
	})
}

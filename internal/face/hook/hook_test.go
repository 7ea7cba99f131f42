// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const velum = "registry.suse.com/caasp/v4/velum"

func release(tag string) *status.Named {
	return &status.Named{Tag: tag, Digest: digest.FromString(tag)}
}

// running returns a node that runs a release of velum, and is offered another one; "" for none.
func running(state status.State, runs, offered string, staged bool) status.Status {
	i := status.ImageStatus{Image: velum, Container: "velum", PodManifest: "velum.yaml", Staged: staged}
	if runs != "" {
		i.Running = release(runs)
	}
	if offered != "" {
		i.Offered, i.Change = release(offered), "rebuild"
	}
	return status.Status{
		SchemaVersion: status.StatusSchemaVersion, State: state, Reason: "because " + string(state),
		Images: []status.ImageStatus{i}, PodManifests: []status.PodStatus{{PodManifest: "velum.yaml"}},
	}
}

func failing(s status.Status, pod, image string, refused ...string) status.Status {
	s.State, s.PodManifests[0].Error, s.Images[0].Error = status.StateFailed, pod, image
	for _, tag := range refused {
		s.Images[0].Refused = append(s.Images[0].Refused,
			policy.Refusal{Tag: "9", Rule: policy.RuleMax, Reason: "too high"}, policy.Refusal{Tag: tag, Rule: policy.RuleFailed, Reason: "not ready"})
	}
	return s
}

// place1 is the place of velum, for every item about it.
var place1 = Item{Image: velum, Container: "velum", PodManifest: "velum.yaml"}

func item(change func(*Item)) Item {
	i := place1
	change(&i)
	return i
}

func offer(from, to string) Item {
	return item(func(i *Item) { i.Change, i.From, i.To, i.Digest = "rebuild", from, to, digest.FromString(to).String() })
}

func moved(from, to string) Item {
	return item(func(i *Item) { i.From, i.To, i.Digest = from, to, digest.FromString(to).String() })
}

// away returns the node's status with an unreachable registry.
func away(s status.Status) status.Status {
	s.Images[0].Error = "503 Service Unavailable"
	return s
}

// byHand returns the node's status after a person has rolled back what it refuses.
func byHand(s status.Status) status.Status {
	s.State = status.StateCurrent
	for n := range s.Images[0].Refused {
		s.Images[0].Refused[n].ByHand = s.Images[0].Refused[n].Rule == policy.RuleFailed
	}
	return s
}

// changes are pairs of statuses and their difference.
var changes = map[string]struct {
	before, now                               status.Status
	offered, staged, applied, failed, waiting []Item
	empty                                     bool
}{
	"nothing":                     {before: running("current", "1", "", false), now: running("current", "1", "", false), empty: true},
	"another state":               {before: running("current", "1", "", false), now: running("stale", "1", "", false)},
	"found":                       {before: running("current", "1", "", false), now: running("held", "1", "2", false), offered: []Item{offer("1", "2")}},
	"found and staged":            {before: running("current", "1", "", false), now: running("staged", "1", "2", true), staged: []Item{offer("1", "2")}, waiting: []Item{offer("1", "2")}},
	"staged":                      {before: running("held", "1", "2", false), now: running("staged", "1", "2", true), staged: []Item{offer("1", "2")}, waiting: []Item{offer("1", "2")}},
	"waits on":                    {before: running("staged", "1", "2", true), now: running("staged", "1", "2", true), waiting: []Item{offer("1", "2")}, empty: true},
	"a newer one":                 {before: running("staged", "1", "2", true), now: running("staged", "1", "3", true), staged: []Item{offer("1", "3")}, waiting: []Item{offer("1", "3")}},
	"is not on the node any more": {before: running("staged", "1", "2", true), now: running("held", "1", "2", false)},
	"applied":                     {before: running("staged", "1", "2", true), now: running("current", "2", "", false), applied: []Item{moved("1", "2")}},
	"applied unseen, and the next is staged": {
		before: running("staged", "1", "2", true), now: running("staged", "2", "3", true),
		staged: []Item{offer("2", "3")}, applied: []Item{moved("1", "2")}, waiting: []Item{offer("2", "3")},
	},
	"is down":       {before: running("current", "1", "", false), now: running("current", "", "", false), empty: true},
	"is up":         {before: running("current", "", "", false), now: running("current", "1", "", false), empty: true},
	"a first start": {now: running("staged", "1", "2", true), staged: []Item{offer("1", "2")}, waiting: []Item{offer("1", "2")}},
	"did not come up": {
		before: running("staged", "1", "2", true), now: failing(running("failed", "1", "", false), "", "", "2"),
		failed: []Item{item(func(i *Item) { i.To, i.Reason = "2", "not ready" })},
	},
	"a person rolled it back": {
		before: running("current", "2", "", false), now: byHand(failing(running("current", "1", "", false), "", "", "2")),
		applied: []Item{moved("2", "1")},
	},
	"the registry is away": {before: running("current", "1", "", false), now: away(running("stale", "1", "", false))},
	"fails on": {
		before: failing(running("failed", "1", "", false), "a", "b", "2"), now: failing(running("failed", "1", "", false), "x", "y", "2"), empty: true,
	},
	"one more fails": {
		before: failing(running("failed", "1", "", false), "", "", "2"), now: failing(running("failed", "1", "", false), "", "", "2", "3"),
		failed: []Item{item(func(i *Item) { i.To, i.Reason = "3", "not ready" })},
	},
	"pod and image": {
		before: running("current", "1", "", false), now: failing(running("failed", "1", "", false), "no such file", "gone"),
		failed: []Item{item(func(i *Item) { i.Reason = "gone" }), {PodManifest: "velum.yaml", Reason: "no such file"}},
	},
	"the node cannot be looked at": {before: running("staged", "1", "2", true), now: status.Status{State: status.StateFailed, Reason: "cri"}, waiting: []Item{offer("1", "2")}},
}

func TestChangesBetweenStatuses(t *testing.T) {
	t.Parallel()
	none := func(items []Item) []Item { return append([]Item{}, items...) }
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var before Announcement
			if c.before.State != "" {
				before = announce(c.before, Announcement{})
			}
			now := announce(c.now, before)
			got := now.since(before)
			assert.Equal(t, Change{
				SchemaVersion: 1, State: string(c.now.State), Was: string(c.before.State), Reason: c.now.Reason,
				Offered: none(c.offered), Staged: none(c.staged), Applied: none(c.applied), Failed: none(c.failed), Waiting: none(c.waiting),
			}, got)
			assert.Equal(t, c.empty, got.Empty())
			if c.empty {
				assert.Equal(t, name != "is down" && name != "is up", now.same(before))
			}
			text, err := json.Marshal(got)
			require.NoError(t, err)
			assert.NotContains(t, string(text), "null")
		})
	}
}

func TestPickedUpReleaseIsReported(t *testing.T) {
	t.Parallel()
	s := running("current", "2", "", false)
	s.Images[0].PickedUp = true
	c := announce(s, Announcement{}).since(announce(running("current", "1", "", false), Announcement{}))
	require.Len(t, c.Applied, 1)
	assert.True(t, c.Applied[0].PickedUp)
}

// A container that was down during a report is reported as applied when it runs another release.
func TestApplyAcrossADownPodIsReported(t *testing.T) {
	t.Parallel()
	d := New(t.TempDir(), t.TempDir(), Programs)
	for _, step := range []struct {
		status  status.Status
		applied int
	}{
		{running("staged", "1", "2", true), 0},
		{failing(running("failed", "", "", false), "down", ""), 0},
		{running("current", "2", "", false), 1},
		{running("stale", "2", "", false), 0},
	} {
		require.NoError(t, d.Announce(t.Context(), step.status))
		assert.Len(t, deliver(t, d).Applied, step.applied)
	}
}

// deliver returns what a hook gets, and records it as delivered.
func deliver(t require.TestingT, d *Outbox) Change {
	change, delivered, err := d.Change(Programs)
	require.NoError(t, err)
	require.NoError(t, delivered())
	return change
}

func isDue(t require.TestingT, d *Outbox) bool {
	_, err := os.Stat(filepath.Join(d.runtimeDir, DueFile))
	if err != nil {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	return err == nil
}

// Without a hook no run is requested, and a hook that is configured later gets every change.
func TestNoRunWithoutAHook(t *testing.T) {
	t.Parallel()
	d := New(t.TempDir(), t.TempDir(), Programs)
	require.NoError(t, d.Note(t.Context(), running("current", "1", "", false)))
	assert.False(t, isDue(t, d))
	d = New(d.stateDir, d.runtimeDir, Programs)
	require.NoError(t, d.Announce(t.Context(), running("current", "1", "", false)))
	assert.True(t, isDue(t, d), "nothing has changed, and nothing was delivered")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, d.Note(ended, running("current", "3", "", false)), context.Canceled)
}

func TestNoRunWithoutAChange(t *testing.T) {
	t.Parallel()
	d := New(t.TempDir(), filepath.Join(t.TempDir(), "made"))
	s := running("failed", "1", "", false)
	require.NoError(t, d.Announce(t.Context(), failing(s, "after 3m", "once")))
	assert.True(t, isDue(t, d))
	requested, err := d.Take()
	require.NoError(t, err)
	assert.True(t, requested)
	requested, err = d.Take()
	require.NoError(t, err)
	assert.False(t, requested, "there is none")
	s.Written, s.Since = time.Now(), time.Now()
	require.NoError(t, d.Announce(t.Context(), failing(s, "after 4m", "twice")))
	deliver(t, d)
	again := New(d.stateDir, d.runtimeDir, Programs)
	require.NoError(t, again.Announce(t.Context(), failing(s, "after 5m", "thrice")), "the next daemon")
	require.NoError(t, again.Announce(t.Context(), status.Status{State: status.StateFailed, Reason: "cri"}), "unseen")
	assert.False(t, isDue(t, d))
	require.NoError(t, again.Due(t.Context()))
	assert.True(t, isDue(t, d))
	for name, mode := range map[string]fs.FileMode{announcementFile: 0o644, DueFile: 0o644} {
		info, err := os.Stat(filepath.Join(d.runtimeDir, name))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode(), name)
	}
}

// Unreadable files, of another version or incomplete, are ignored.
func TestUnreadableFilesDoNotStopReports(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"half": `{"schemaVersion":1,"sta`, "newer": `{"schemaVersion":2,"state":"staged"}`, "empty": ""} {
		d := New(t.TempDir(), t.TempDir(), Programs)
		require.NoError(t, os.WriteFile(filepath.Join(d.runtimeDir, announcementFile), []byte(text), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(d.stateDir, deliveredFile(Programs)), []byte(text), 0o600))
		_, _, err := d.Change(Programs)
		require.Error(t, err, name)
		require.NoError(t, d.Announce(t.Context(), running("staged", "1", "2", true)))
		assert.True(t, isDue(t, d), name)
		assert.Len(t, deliver(t, d).Staged, 1, name)
		change, _, err := d.Change(Programs)
		require.NoError(t, err)
		assert.True(t, change.Empty())
	}
}

func TestNoAnnouncementIsNoChange(t *testing.T) {
	t.Parallel()
	d := New(filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "none"), Programs)
	change, _, err := d.Change(Programs)
	require.NoError(t, err)
	assert.True(t, change.Empty())
}

// After a boot /run is empty, and the node may not be observable yet: the last delivered announcement stays.
func TestDeliveredAnnouncementSurvivesAFailedBoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := New(dir, t.TempDir(), Programs)
	require.NoError(t, d.Announce(t.Context(), running("staged", "1", "2", true)))
	deliver(t, d)
	d = New(dir, t.TempDir(), Programs)
	change, _, err := d.Change(Programs)
	require.NoError(t, err)
	assert.True(t, change.Empty(), "the node was not observed yet")
	require.NoError(t, d.Announce(t.Context(), status.Status{State: status.StateFailed, Reason: "cri"}))
	change = deliver(t, d)
	assert.Equal(t, "failed", change.State)
	assert.Equal(t, []Item{offer("1", "2")}, change.Waiting)
	require.NoError(t, d.Announce(t.Context(), running("staged", "2", "3", true)))
	change, _, err = d.Change(Programs)
	require.NoError(t, err)
	assert.Equal(t, []Item{moved("1", "2")}, change.Applied)
	assert.Equal(t, []Item{offer("2", "3")}, change.Staged)
}

func TestUnwritableDirectoryIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, New(file, file).Announce(t.Context(), running("current", "", "", false)), "hook: ")
	d := New(t.TempDir(), t.TempDir(), Programs)
	require.NoError(t, os.MkdirAll(filepath.Join(d.runtimeDir, DueFile, "x"), 0o755))
	_, err := d.Take()
	require.Error(t, err)
	require.Error(t, d.Announce(t.Context(), running("current", "1", "", false)), "a directory in the place of the due file")
}

func TestAnnouncementsAreBounded(t *testing.T) {
	t.Parallel()
	s := failing(running("failed", "1", "2", true), strings.Repeat("ä", 2000), "line\none\x1b[2J\xff", make([]string, 100)...)
	for len(s.Images) < 1000 {
		s.Images, s.PodManifests = append(s.Images, s.Images[0]), append(s.PodManifests, s.PodManifests[0])
	}
	d := New(t.TempDir(), t.TempDir(), Programs)
	require.NoError(t, d.Announce(t.Context(), s))
	change := deliver(t, d) // and it can be read again
	assert.Len(t, change.Waiting, 256)
	text, err := json.Marshal(change)
	require.NoError(t, err)
	assert.Less(t, len(text), 2<<20)
	assert.Contains(t, string(text), "line one [2J ")
	for _, f := range change.Failed {
		assert.LessOrEqual(t, len(f.Reason), 512)
	}
}

// For any sequence of statuses, hook runs, failures and daemon restarts, the sum of all delivered changes has the
// running and waiting releases.
func TestPropertyDeliveredChangesAreComplete(t *testing.T) {
	t.Parallel()
	all := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(all, "") //nolint:usetesting // one per case
		require.NoError(t, err)
		d := New(filepath.Join(dir, "state"), filepath.Join(dir, "run"), Programs)
		var now status.Status
		knows, staged := map[string]bool{}, map[string]bool{}
		var wanted, wantedStaged []string
		last := ""
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {},
			"status": func(t *rapid.T) {
				runs := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "runs")
				offered := rapid.SampledFrom([]string{"", "7", "8"}).Draw(t, "offered")
				now = running("current", runs, offered, offered != "" && rapid.Bool().Draw(t, "staged"))
				require.NoError(t, d.Announce(t.Context(), now))
			},
			"new daemon": func(*rapid.T) { d = New(d.stateDir, d.runtimeDir, Programs) },
			"hook": func(t *rapid.T) {
				if !isDue(t, d) {
					return
				}
				_, err := d.Take()
				require.NoError(t, err)
				change, delivered, err := d.Change(Programs)
				require.NoError(t, err)
				if rapid.Bool().Draw(t, "fails") {
					return
				}
				require.NoError(t, delivered())
				wanted, wantedStaged = wanted[:0], wantedStaged[:0]
				if runs := now.Images[0].Running.Tag; last != "" && runs != last {
					wanted = append(wanted, runs)
				}
				last = now.Images[0].Running.Tag
				clear(knows)
				for _, i := range change.Applied {
					knows[i.To] = true
				}
				clear(staged)
				for _, i := range change.Waiting {
					staged[i.To] = true
				}
				if now.Images[0].Staged {
					wantedStaged = append(wantedStaged, now.Images[0].Offered.Tag)
				}
				require.Len(t, knows, len(wanted))
				for _, tag := range wanted {
					require.True(t, knows[tag])
				}
				require.Len(t, staged, len(wantedStaged))
				for _, tag := range wantedStaged {
					require.True(t, staged[tag])
				}
			},
		})
	})
}

func FuzzReading(f *testing.F) {
	good, err := json.Marshal(announce(failing(running("failed", "1", "2", true), "a", "b", "c"), Announcement{}))
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte(`{"schemaVersion":1,"images":[{}],"podManifests":null}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, announcementFile), data, 0o600))
		a, err := read(dir, announcementFile)
		if err != nil {
			require.NotErrorIs(t, err, fs.ErrNotExist)
			return
		}
		require.Empty(t, a.since(a).Applied)
		require.Len(t, a.withLastRunning(a).Images, len(a.Images))
	})
}

// A run that could not be requested is requested by the next announcement, of this daemon or a later one.
func TestFailedRequestOfARunIsRepeated(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(d *Outbox) *Outbox{
		"by this daemon":      func(d *Outbox) *Outbox { return d },
		"by the one after it": func(d *Outbox) *Outbox { return New(d.stateDir, d.runtimeDir, Programs) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := New(t.TempDir(), t.TempDir(), Programs)
			due := filepath.Join(d.runtimeDir, DueFile)
			require.NoError(t, os.Mkdir(due, 0o755))
			s := status.Status{State: status.StateStaged}
			require.Error(t, d.Announce(t.Context(), s))
			d = next(d)
			require.Error(t, d.Announce(t.Context(), s))
			require.NoError(t, os.Remove(due))
			require.NoError(t, d.Announce(t.Context(), s))
			assert.FileExists(t, due)

			_, err := d.Take()
			require.NoError(t, err)
			require.NoError(t, d.Announce(t.Context(), s))
			assert.NoFileExists(t, due, "once is enough")
			deliver(t, d)
			require.NoError(t, New(d.stateDir, d.runtimeDir, Programs).Announce(t.Context(), s))
			assert.NoFileExists(t, due, "and it was delivered")
		})
	}
}

// A webhook that is removed from the configuration leaves no data, and is new if it is configured again.
func TestRemovedConsumerIsForgotten(t *testing.T) {
	t.Parallel()
	all := []string{Programs, "chat", "chat.old", "json"}
	for _, c := range []struct{ kept, gone []string }{
		{kept: all},
		{kept: []string{Programs, "chat"}, gone: []string{"chat.old", "json"}},
		{kept: []string{"chat"}, gone: []string{Programs, "chat.old", "json"}},
		{gone: all},
	} {
		d := New(t.TempDir(), t.TempDir(), all...)
		require.NoError(t, d.Announce(t.Context(), running("staged", "1", "2", true)))
		for _, consumer := range all {
			_, delivered, err := d.Change(consumer)
			require.NoError(t, err)
			require.NoError(t, delivered())
		}
		require.NoError(t, d.Ended(map[string]error{Programs: errRefused}, time.Now()))
		others := []string{"status.json", "hookjson", "hook..json", "hook.a.json.bak", "ahook.a.json"}
		for _, name := range others {
			require.NoError(t, os.WriteFile(filepath.Join(d.stateDir, name), nil, 0o600))
		}
		next := New(d.stateDir, d.runtimeDir, c.kept...)
		require.NoError(t, next.Note(t.Context(), running("staged", "1", "2", true)))
		for _, consumer := range c.kept {
			assert.FileExists(t, filepath.Join(d.stateDir, deliveredFile(consumer)))
		}
		for _, consumer := range c.gone {
			assert.NoFileExists(t, filepath.Join(d.stateDir, deliveredFile(consumer)))
		}
		for _, name := range others {
			assert.FileExists(t, filepath.Join(d.stateDir, name))
		}
		assert.Equal(t, len(c.kept) == 0, len(next.retries().Of) == 0, "without hooks nothing is tried again")
	}
}

// An offer says its severity and fixes; what the publisher adds to it later is news.
func TestAnOfferSaysWhatItBrings(t *testing.T) {
	t.Parallel()
	of := func(brings *catalog.Brought) Announcement {
		return announce(status.Status{State: status.StateStaged, Images: []status.ImageStatus{{
			Image: "r.io/velum", Staged: true, Change: "rebuild", Offered: &status.Named{Tag: "2", Digest: "sha256:2"}, Brings: brings,
		}}, PodManifests: []status.PodStatus{{}}}, Announcement{})
	}
	known := of(&catalog.Brought{Severity: catalog.SeverityImportant, Fixes: []string{"CVE-2026-1234"}})
	c := known.since(Announcement{})
	require.Len(t, c.Staged, 1)
	assert.Equal(t, "important", c.Staged[0].Severity)
	assert.Equal(t, []string{"CVE-2026-1234"}, c.Staged[0].Fixes)
	assert.Contains(t, c.text(), "(rebuild) important")
	assert.False(t, known.same(of(nil)))
	assert.True(t, known.same(known))
}

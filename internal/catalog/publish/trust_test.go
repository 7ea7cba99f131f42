// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// house is a catalog whose channels have keys of their own, and a registry that everybody may push to.
type house struct {
	t    *testing.T
	m    *memory
	keys map[string][2][]byte // by name: private, public
}

func newHouse(t *testing.T, names ...string) *house {
	t.Helper()
	h := &house{t, newMemory(), map[string][2][]byte{}}
	for _, name := range names {
		private, public := newKey(t)
		h.keys[name] = [2][]byte{private, public}
	}
	return h
}

func (h *house) public(name string) []byte { return h.keys[name][1] }

// as is a publisher who signs with some keys.
func (h *house) as(trust publish.Trust, names ...string) *publish.Publisher {
	return h.with(trust, nil, names...)
}

func (h *house) with(trust publish.Trust, edit func(*publish.Options), names ...string) *publish.Publisher {
	h.t.Helper()
	o := publish.Options{
		Repository: memoryRepository, Registry: h.m, Trust: trust, By: strings.Join(names, "+"), Now: func() time.Time { return noon },
	}
	for _, name := range names {
		o.Keys = append(o.Keys, parsedKey(h.t, h.keys[name][0]))
	}
	if edit != nil {
		edit(&o)
	}
	p, err := publish.New(o)
	require.NoError(h.t, err)
	return p
}

func (h *house) does(p *publish.Publisher, channel string, do publish.Verb, how publish.How) publish.Result {
	h.t.Helper()
	got, err := p.Change(h.t.Context(), channel, do, how)
	require.NoError(h.t, err)
	return got
}

func added(all ...catalog.Change) publish.Verb {
	return publish.Ask(ops.Want{Do: catalog.ActionAdd, Changes: all})
}

func promoted(all ...catalog.Change) publish.Verb {
	return publish.Ask(ops.Want{Do: catalog.ActionPromote, Changes: all})
}

// begin makes stage, signed by ci, and prod, signed by these keys, with one release in each.
func (h *house) begin(require int, prod ...string) {
	h.t.Helper()
	ci := h.as(publish.Trust{}, "ci")
	h.does(ci, "stage", publish.Refresh(time.Time{}), publish.How{New: true})
	h.does(ci, "stage", added(releaseOf("velum", 1, "")), publish.How{})
	p := h.as(publish.Trust{Require: require}, prod...)
	h.does(p, "prod", publish.Refresh(time.Time{}), publish.How{New: true})
}

// offers are the releases that a channel offers, for who trusts some keys.
func (h *house) offers(channel string, names ...string) map[string]string {
	h.t.Helper()
	trust := publish.Trust{}
	for _, name := range names {
		trust.All = append(trust.All, h.public(name))
	}
	p := h.as(trust)
	v, err := p.Read(h.t.Context(), channel)
	require.NoError(h.t, err)
	pages, err := p.Pages(h.t.Context(), v)
	require.NoError(h.t, err)
	return offered(ops.State{Pages: pages})
}

// store stores an op that somebody has signed, as whoever may push can.
func (h *house) store(op catalog.Op, names ...string) {
	h.t.Helper()
	op.Name = memoryRepository
	data, err := op.Encode()
	require.NoError(h.t, err)
	var sigs []string
	for _, name := range names {
		sigs = append(sigs, signedBytes(h.t, h.keys[name][0], data))
	}
	body, err := catalog.OpManifest(data, sigs...)
	require.NoError(h.t, err)
	require.NoError(h.t, h.m.PutManifest(h.t.Context(), memoryRepository, op.Tag, body))
}

func opAt(channel string, at time.Time, turn uint64, do catalog.Action, all ...catalog.Change) catalog.Op {
	return catalog.Op{Tag: catalog.NewOpTag(channel, at), Channel: channel, Do: do, Turn: turn, Changes: all, By: "thief"}
}

var evil = releaseOf("evil", 9, "")

// An older publisher drops the turn of the channel, and keeps those of its releases. What is asked for next still counts.
func TestAChangeCountsAfterAnOlderPublisher(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "ci", "prod")
	h.begin(1, "prod")
	c := releaseOf("velum", 1, "")
	for hours := range 5 {
		c.Release.Rollout = &catalog.Rollout{From: noon, Hours: 48 + hours}
		h.does(h.as(publish.Trust{}, "prod"), "prod", promoted(c), publish.How{})
	}
	maps.DeleteFunc(h.m.tags, func(tag string, _ digest.Digest) bool { return strings.HasPrefix(tag, "op-prod-") }) // pruned
	h.publishAs(t, "prod", func(m *catalog.Manifest) { m.Turn = 0 })
	pause := publish.Roll(publish.Selection{}, publish.Steer{Pause: true})
	got := h.does(h.as(publish.Trust{}, "prod"), "prod", pause, publish.How{})
	assert.True(t, got.Changed, "%v", got.Outcomes)
	assert.Contains(t, h.offers("prod", "prod")[c.Member()], "paused")
}

// Who has the key of FROM brings nothing into TO but what FROM offers: neither by a version of TO nor by an op for it.
func TestKeysOfFromSayWhatFromOffersOnly(t *testing.T) {
	t.Parallel()
	promote := func(h *house, how publish.How) (publish.Result, error) {
		p := h.as(publish.Trust{Of: map[string][][]byte{"stage": {h.public("ci")}}}, "prod")
		stage, err := p.Offer(t.Context(), "stage")
		require.NoError(t, err)
		return p.Change(t.Context(), "prod", publish.Promote(stage, publish.Promotion{Selection: publish.Selection{All: true}}), how)
	}
	t.Run("an op", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, "ci", "prod")
		h.begin(1, "prod")
		op := opAt("prod", noon, 9, catalog.ActionPromote, evil)
		h.store(op, "ci")
		for _, dryRun := range []bool{true, false} {
			got, err := promote(h, publish.How{DryRun: dryRun})
			require.NoError(t, err)
			require.Len(t, got.Waiting, 1)
			assert.Equal(t, op.Tag, got.Waiting[0].Op)
			assert.Contains(t, got.Waiting[0].Why, "another key")
			assert.Empty(t, got.Others)
		}
		assert.Equal(t, []string{images + "velum:" + build(1)}, members(h.offers("prod", "prod")))
	})
	t.Run("a version", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, "ci", "prod")
		h.begin(1, "prod")
		h.does(h.as(publish.Trust{All: [][]byte{h.public("prod")}}, "ci"), "prod", added(evil), publish.How{})
		_, err := promote(h, publish.How{})
		require.Equal(t, publish.KindUnsigned, kindOf(err), "%v", err)
		var e *publish.Error
		require.ErrorAs(t, err, &e)
		assert.EqualValues(t, 1, e.Base, "the newest version that prod's own key has signed")
	})
}

func members(offered map[string]string) (out []string) {
	for member := range offered {
		out = append(out, member)
	}
	return out
}

// Two of three: an op that one key has signed is named and waits, until a second one signs it, or whoever signs the version
// accepts it by its name. Each signer sees the same list, also without a key.
func TestAnOpNeedsAsManyKeysAsAVersion(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "ci", "anna", "bert", "carl")
	h.begin(2, "anna", "bert")
	trust := publish.Trust{Require: 2, All: [][]byte{h.public("anna"), h.public("bert"), h.public("carl")}}
	one := opAt("prod", noon, 9, catalog.ActionPromote, evil)
	h.store(one, "carl")
	two := opAt("prod", noon, 9, catalog.ActionAdd, releaseOf("etcd", 1, ""))
	h.store(two, "anna", "carl")

	got := h.does(h.as(trust, "anna", "bert"), "prod", added(releaseOf("velum", 1, "")), publish.How{DryRun: true})
	require.Len(t, got.Waiting, 1)
	assert.Equal(t, publish.Waiting{Op: one.Tag, Why: "signed by too few keys: 1, want 2"}, got.Waiting[0])
	require.Len(t, got.Others, 1)
	assert.Equal(t, two.Tag, got.Others[0].Op)
	assert.Equal(t, "thief", got.Others[0].By)
	assert.Equal(t, []string{images + "etcd:" + build(1)}, got.Others[0].Releases)
	assert.Len(t, got.Others[0].Keys, 2)

	nobodys := opAt("prod", noon, 9, catalog.ActionPromote, evil)
	h.store(nobodys, "ci")
	pruned, err := h.as(trust, "anna", "bert").Prune(t.Context(), "prod", publish.Pruning{Keep: 100, Foreign: true})
	require.NoError(t, err)
	assert.Equal(t, []string{nobodys.Tag}, pruned.Deleted, "one that a key of the channel has signed may be accepted yet")

	trust.Accept = []string{one.Tag}
	dir := filepath.Join(t.TempDir(), "out")
	h.does(h.as(trust), "prod", added(releaseOf("velum", 1, "")), publish.How{Out: dir})
	for _, names := range [][]string{nil, {"anna", "bert", "carl"}} {
		trust := publish.Trust{}
		for _, name := range names {
			trust.All = append(trust.All, h.public(name))
		}
		got, err := h.as(trust).PublishDir(t.Context(), dir, nil, true)
		require.NoError(t, err)
		var listed, named []string
		for _, o := range got.Outcomes {
			listed = append(listed, o.Image)
		}
		for _, o := range got.Others {
			named = append(named, o.Op)
		}
		assert.ElementsMatch(t, []string{images + "evil", images + "velum", images + "etcd"}, listed, "what the pages change")
		assert.Subset(t, named, []string{one.Tag, two.Tag})
		assert.Len(t, named, 3, "with the one of the request")
	}
	assert.Empty(t, h.offers("prod", "anna"))
}

// A version that was written for others to sign changes what its ops name, and keeps what the channel had, or it is not
// published: a dry run without a key says so.
func TestADirectoryThatHidesAChangeIsRefused(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		edit func(t *testing.T, dir string, m *catalog.Manifest)
		want string
	}{
		"a release that no op names": {func(t *testing.T, dir string, m *catalog.Manifest) {
			t.Helper()
			setPage(t, dir, m, catalog.Page{Image: evil.Image, Releases: []catalog.Release{evil.Release}})
		}, "the page of " + evil.Image + " is not what the ops make of version 3"},
		"another digest for what an op names": {func(t *testing.T, dir string, m *catalog.Manifest) {
			t.Helper()
			r := releaseOf("velum", 1, "")
			r.Release.Digest = evil.Release.Digest
			setPage(t, dir, m, catalog.Page{Image: r.Image, Releases: []catalog.Release{r.Release}})
		}, "the page of " + images + "velum is not what the ops make of version 3"},
		"a page that is not there any more": {func(_ *testing.T, _ string, m *catalog.Manifest) {
			m.Pages = m.Pages[1:] // etcd, with its withdrawal
		}, "the page of " + images + "etcd is not what the ops make of version 3"},
		"a withdrawal that is not there any more": {func(t *testing.T, dir string, m *catalog.Manifest) {
			t.Helper()
			setPage(t, dir, m, catalog.Page{Image: images + "etcd"})
		}, "the page of " + images + "etcd is not what the ops make of version 3"},
		"a pending withdrawal that only the log has": {func(t *testing.T, dir string, m *catalog.Manifest) {
			t.Helper()
			r := releaseOf("velum", 1, "")
			r.Release.Rollout = &catalog.Rollout{From: noon, Hours: 48}
			setPage(t, dir, m, catalog.Page{Image: r.Image, Releases: []catalog.Release{r.Release}})
		}, "the page of " + images + "velum is not what the ops make of version 3"},
		"an op that the log does not have": {func(_ *testing.T, _ string, m *catalog.Manifest) {
			m.Merged = append([]string{"op-prod-20200101T000000Z-000000000000"}, m.Merged...)
		}, "not what the ops make of version 3"},
		"an op that somebody else has asked for": {func(t *testing.T, dir string, _ *catalog.Manifest) {
			t.Helper()
			editOps(t, dir, func(op *catalog.Op) { op.By = "nobody" })
		}, "the log differs from the ops"},
		"an op of another catalog": {func(t *testing.T, dir string, _ *catalog.Manifest) {
			t.Helper()
			editOps(t, dir, func(op *catalog.Op) { op.Name = images + "other" })
		}, "is for channel prod of " + images + "other"},
		"another catalog": {func(t *testing.T, dir string, m *catalog.Manifest) {
			t.Helper()
			m.Name = images + "other"
			editOps(t, dir, func(op *catalog.Op) { op.Name = m.Name })
		}, "is for channel prod of " + images + "other"},
		"a log that has lost its beginning": {func(t *testing.T, dir string, m *catalog.Manifest) {
			t.Helper()
			editLog(t, dir, m, func(all []catalog.Entry) []catalog.Entry { return all[1:] })
		}, "its log is not that of the version before, with its ops"},
		"a log with a past of its own": {func(t *testing.T, dir string, m *catalog.Manifest) {
			t.Helper()
			editLog(t, dir, m, func(all []catalog.Entry) []catalog.Entry { return slices.Insert(all, 0, all[0]) })
		}, "its log is not that of the version before, with its ops"},
		"an op that does not count": {func(t *testing.T, dir string, _ *catalog.Manifest) {
			t.Helper()
			editOps(t, dir, func(op *catalog.Op) { op.Turn = catalog.MaxVersion })
		}, "its turn is"},
		"a list of ops with another one": {func(t *testing.T, dir string, m *catalog.Manifest) {
			t.Helper()
			list, err := catalog.EncodeOps([]string{"op-prod-20200101T000000Z-000000000000"})
			require.NoError(t, err)
			m.Ops = catalog.BlobRef{Digest: digest.FromBytes(list), Size: int64(len(list))}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "blobs", m.Ops.Digest.Encoded()), list, 0o600))
		}, "lists op-prod-20200101T000000Z-000000000000 as published, but has no such op"},
		"the last version there can be": {func(_ *testing.T, _ string, m *catalog.Manifest) { m.Version = catalog.MaxVersion }, "too far above version 3"},
		"the last turn there can be":    {func(_ *testing.T, _ string, m *catalog.Manifest) { m.Turn = catalog.MaxVersion }, "not what the ops make of version 3"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, "ci", "prod")
			h.begin(1, "prod")
			p := h.as(publish.Trust{}, "prod")
			h.does(p, "prod", added(releaseOf("velum", 1, ""), releaseOf("etcd", 1, "")), publish.How{})
			h.does(p, "prod", publish.Withdraw(publish.Withdrawal{Images: []string{"etcd:" + build(1)}, Reason: "bsc#1"}), publish.How{})
			gone := releaseOf("velum", 1, "")
			gone.Release.Withdrawn = &catalog.Withdrawal{At: noon, Reason: "bsc#2"}
			h.store(opAt("prod", noon, 9, catalog.ActionWithdraw, gone), "prod")
			dir := filepath.Join(t.TempDir(), "out")
			trust := publish.Trust{All: [][]byte{h.public("prod")}}
			h.does(h.as(trust), "prod", publish.Refresh(noon.Add(time.Hour)), publish.How{Out: dir})
			_, err := h.as(trust).PublishDir(t.Context(), dir, nil, true)
			require.NoError(t, err)
			editDir(t, dir, func(m *catalog.Manifest) { c.edit(t, dir, m) })
			_, err = h.as(trust).PublishDir(t.Context(), dir, nil, true)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// editLog edits the log of a directory, which has one part.
func editLog(t *testing.T, dir string, m *catalog.Manifest, edit func([]catalog.Entry) []catalog.Entry) {
	t.Helper()
	require.Len(t, m.Log, 1)
	data, err := os.ReadFile(filepath.Join(dir, "blobs", m.Log[0].Digest.Encoded()))
	require.NoError(t, err)
	part, err := catalog.UnpackLog(data, m.Log[0])
	require.NoError(t, err)
	entries, err := part.Entries()
	require.NoError(t, err)
	parts, err := catalog.NewLog(edit(entries)...)
	require.NoError(t, err)
	data, err = parts[0].Encode()
	require.NoError(t, err)
	m.Log[0] = catalog.BlobRef{Digest: digest.FromBytes(data), Size: int64(len(data))}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "blobs", m.Log[0].Digest.Encoded()), data, 0o600))
}

// A version that was written for others to sign is published as it was written, also if one of its ops ends a freeze,
// and if what carries the directory keeps no empty one.
func TestADirectoryIsPublishedAsItWasWritten(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "ci", "prod")
	h.begin(1, "prod")
	p := h.as(publish.Trust{}, "prod")
	trust := publish.Trust{All: [][]byte{h.public("prod")}}
	h.does(p, "prod", publish.Freeze(noon.Add(time.Hour)), publish.How{})
	h.store(opAt("prod", noon, 9, catalog.ActionFreeze), "prod") // unfreeze, whose publisher was killed
	dir := filepath.Join(t.TempDir(), "add")
	h.does(h.as(trust), "prod", added(releaseOf("velum", 1, "")), publish.How{Out: dir})
	_, err := h.as(trust).PublishDir(t.Context(), dir, nil, true)
	require.NoError(t, err)

	maps.DeleteFunc(h.m.tags, func(tag string, _ digest.Digest) bool { return strings.HasPrefix(tag, "op-prod-") }) // pruned
	dir = filepath.Join(t.TempDir(), "base")
	based := h.with(trust, func(o *publish.Options) { o.Base = 1 })
	h.does(based, "prod", publish.Refresh(time.Time{}), publish.How{Out: dir})
	if entries, err := os.ReadDir(filepath.Join(dir, "ops")); err == nil && len(entries) == 0 {
		require.NoError(t, os.Remove(filepath.Join(dir, "ops")))
	}
	_, err = h.as(trust).PublishDir(t.Context(), dir, nil, true)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "ops"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ops", ".DS_Store"), nil, 0o600))
	_, err = h.as(trust).PublishDir(t.Context(), dir, nil, true)
	require.ErrorContains(t, err, filepath.Join(dir, "ops", ".DS_Store")+": not an op")
}

// Who builds on an earlier version sees what that leaves out: before it is published, and before it is signed elsewhere,
// also where whoever prepares the directory has chosen the earlier version.
func TestABaseNamesWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "ci", "prod")
	h.begin(1, "prod")
	p := h.as(publish.Trust{}, "prod")
	h.does(p, "prod", added(releaseOf("velum", 1, ""), releaseOf("velum", 2, "")), publish.How{})
	h.does(p, "prod", publish.Withdraw(publish.Withdrawal{Images: []string{"velum:" + build(2)}, Reason: "bsc#1"}), publish.How{})
	h.does(p, "prod", added(evil), publish.How{})
	maps.DeleteFunc(h.m.tags, func(tag string, _ digest.Digest) bool { return strings.HasPrefix(tag, "op-prod-") }) // pruned
	based := func(o *publish.Options) { o.Base = 2 }
	dir := filepath.Join(t.TempDir(), "out")
	trust := publish.Trust{All: [][]byte{h.public("prod")}}
	all := map[string]publish.Result{
		"--out":     h.does(h.with(trust, based), "prod", publish.Refresh(noon.Add(time.Hour)), publish.How{Out: dir}),
		"--dry-run": h.does(h.with(trust, based, "prod"), "prod", publish.Refresh(noon.Add(time.Hour)), publish.How{DryRun: true}),
	}
	var err error
	all["publish"], err = h.as(publish.Trust{}).PublishDir(t.Context(), dir, nil, true)
	require.NoError(t, err)
	all["done"] = h.does(h.with(trust, based, "prod"), "prod", publish.Refresh(noon.Add(time.Hour)), publish.How{})
	for title, got := range all {
		var notes []string
		for _, o := range got.Outcomes {
			notes = append(notes, catalog.Member(o.Image, o.Tag)+": "+o.Note)
		}
		assert.Equal(t, []string{
			evil.Member() + ": not offered any more: version 4, which lists it, is left out",
			images + "velum:" + build(2) + ": offered again: version 4, which is left out, has withdrawn it: bsc#1",
		}, notes, title)
	}
}

// The page on a leaked key: the thief has published versions and ops with it. The next version builds upon the last one
// that its owner knows, with the new key, and the channel can be changed from then on with that key alone.
func TestAChannelGoesOnAfterItsKeyLeaked(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "ci", "prod", "prod-2027")
	h.begin(1, "prod")
	h.does(h.as(publish.Trust{}, "prod"), "prod", added(releaseOf("velum", 1, "")), publish.How{})
	thief := h.as(publish.Trust{}, "prod")
	h.does(thief, "prod", added(evil), publish.How{})
	h.does(thief, "prod", publish.Freeze(noon.Add(1000*time.Hour)), publish.How{})
	h.store(opAt("prod", noon, 99, catalog.ActionPromote, releaseOf("evil", 8, "")), "prod")

	// Without the thief's key nothing is built upon his versions, and with it he would go on.
	_, err := h.as(publish.Trust{}, "prod-2027").Change(t.Context(), "prod", publish.Settle, publish.How{})
	require.Equal(t, publish.KindUnsigned, kindOf(err), "%v", err)

	p := h.with(publish.Trust{All: [][]byte{h.public("prod")}}, func(o *publish.Options) { o.Base = 2 }, "prod-2027")
	got := h.does(p, "prod", publish.Refresh(noon.Add(90*24*time.Hour)), publish.How{Reason: "prod.key leaked"})
	assert.EqualValues(t, 5, got.Version, "above the thief's")
	assert.Equal(t, []string{images + "velum:" + build(1)}, members(h.offers("prod", "prod-2027")))

	owner := h.as(publish.Trust{}, "prod-2027")
	h.does(owner, "prod", added(releaseOf("velum", 2, "")), publish.How{})
	assert.Len(t, h.offers("prod", "prod-2027"), 2)
	found, err := owner.Verify(t.Context(), "prod", false)
	require.NoError(t, err)
	assert.NotEmpty(t, found, "the thief's op still lies there")
	_, err = owner.Prune(t.Context(), "prod", publish.Pruning{Keep: 100, Foreign: true})
	require.NoError(t, err)
	found, err = owner.Verify(t.Context(), "prod", false)
	require.NoError(t, err)
	assert.Empty(t, found)
	h.does(thiefAgain(h), "prod", added(releaseOf("evil", 7, "")), publish.How{})
	_, err = owner.Change(t.Context(), "prod", publish.Settle, publish.How{})
	assert.Equal(t, publish.KindUnsigned, kindOf(err), "%v", err)
}

// The version after a leaked key is one that nodes take: above that of the thief, also if it has no tag of its own, and not
// above one that is so far above that no node takes it.
func TestTheVersionAfterALeakIsAboveTheThiefs(t *testing.T) {
	t.Parallel()
	for thiefs, want := range map[uint64]uint64{3: 4, 900: 901, catalog.MaxJump + 1: catalog.MaxJump + 2, 1 << 30: 3, catalog.MaxVersion: 3} {
		for _, hasTag := range []bool{true, false} {
			h := newHouse(t, "ci", "prod", "prod-2027")
			h.begin(1, "prod")
			h.does(h.as(publish.Trust{}, "prod"), "prod", added(releaseOf("velum", 1, "")), publish.How{})
			h.publishAs(t, "prod", func(m *catalog.Manifest) { m.Version = thiefs - 1 })
			if !hasTag {
				delete(h.m.tags, catalog.VersionTag("prod", thiefs))
			}
			p := h.with(publish.Trust{All: [][]byte{h.public("prod")}}, func(o *publish.Options) { o.Base = 2 }, "prod-2027")
			got := h.does(p, "prod", publish.Refresh(noon.Add(time.Hour)), publish.How{})
			assert.Equal(t, want, got.Version, "after %d, with a tag: %v", thiefs, hasTag)
		}
	}
}

// thiefAgain is the thief, who accepts the new key.
func thiefAgain(h *house) *publish.Publisher {
	return h.as(publish.Trust{All: [][]byte{h.public("prod-2027")}}, "prod")
}

// An op of the year 9999, or a tag of one without any op behind it, changes nothing for those that follow, and a channel
// that has folded one of an older publisher is changed by any verb.
func TestOpsOfTheYear9999(t *testing.T) {
	t.Parallel()
	const tag = "op-prod-99991231T235959Z-ffff00000000"
	gone := publish.Withdraw(publish.Withdrawal{Images: []string{"velum" + ":" + build(1)}, Reason: "bsc#1"})
	check := func(t *testing.T, h *house) {
		t.Helper()
		p := h.as(publish.Trust{}, "prod")
		h.does(p, "prod", gone, publish.How{})
		assert.Empty(t, h.offers("prod", "prod"))
		got := h.does(p, "prod", publish.Refresh(noon.Add(time.Hour)), publish.How{})
		assert.Equal(t, noon.Add(time.Hour), got.Expires)
		got = h.does(p, "prod", publish.Freeze(noon.Add(time.Hour)), publish.How{})
		assert.Equal(t, noon.Add(time.Hour), got.Frozen)
	}
	begin := func(t *testing.T) *house {
		t.Helper()
		h := newHouse(t, "ci", "prod")
		h.begin(1, "prod")
		h.does(h.as(publish.Trust{}, "prod"), "prod", added(releaseOf("velum", 1, "")), publish.How{})
		return h
	}
	t.Run("a tag of nothing", func(t *testing.T) {
		t.Parallel()
		h := begin(t)
		h.m.tags[tag] = digest.FromString("nothing")
		check(t, h)
	})
	t.Run("a valid op", func(t *testing.T) {
		t.Parallel()
		h := begin(t)
		h.store(catalog.Op{Tag: tag, Channel: "prod", Do: catalog.ActionRefresh, Expires: noon.Add(-time.Hour)}, "prod")
		check(t, h)
		found, err := h.as(publish.Trust{}, "prod").Verify(t.Context(), "prod", false)
		require.NoError(t, err)
		assert.Contains(t, fmt.Sprint(found), "more than a day ahead")
	})
	t.Run("folded by an older publisher", func(t *testing.T) {
		t.Parallel()
		h := begin(t)
		h.publishAs(t, "prod", func(m *catalog.Manifest) {
			m.Refreshed, m.Freeze, m.Turn = catalog.Mark{Op: tag}, catalog.Mark{Op: tag}, 0
			m.Expires = noon.Add(-time.Hour)
		})
		check(t, h)
	})
	t.Run("a turn that would use up all others", func(t *testing.T) {
		t.Parallel()
		h := begin(t)
		op := opAt("prod", noon, catalog.MaxVersion, catalog.ActionRefresh)
		h.store(op, "prod")
		check(t, h)
	})
}

// A forged time in the name of an op makes no release old: it soaks since the version that has it was published.
func TestSoakedGoesByTheVersionThatOffersIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "ci", "prod")
	h.begin(1, "prod")
	h.store(opAt("stage", noon.AddDate(-6, 0, 0), 2, catalog.ActionAdd, evil), "ci")
	h.does(h.as(publish.Trust{}, "ci"), "stage", publish.Settle, publish.How{})
	assert.Contains(t, h.offers("stage", "ci"), evil.Member())
	p := h.with(publish.Trust{Of: map[string][][]byte{"stage": {h.public("ci")}}}, func(o *publish.Options) {
		o.Now = func() time.Time { return noon.Add(time.Minute) }
	}, "prod")
	stage, err := p.Offer(t.Context(), "stage")
	require.NoError(t, err)
	got := h.does(p, "prod", publish.Promote(stage, publish.Promotion{Selection: publish.Selection{All: true, Soaked: 24 * time.Hour}}), publish.How{})
	assert.False(t, got.Changed, "%v", got.Outcomes)
}

// publishAs publishes a version that was edited, with its signature.
func (h *house) publishAs(t *testing.T, key string, edit func(*catalog.Manifest)) {
	t.Helper()
	_, body, err := h.m.Manifest(t.Context(), memoryRepository, key)
	require.NoError(t, err)
	m, err := catalog.DecodeManifest(body)
	require.NoError(t, err)
	edit(&m)
	m.Version++
	body, d, err := m.Encode()
	require.NoError(t, err)
	_, sig, err := h.m.Manifest(t.Context(), memoryRepository, catalog.SignatureTag(h.m.tags[m.Channel]))
	require.NoError(t, err)
	payload := fmt.Sprintf(`{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},`+
		`"type":"cosign container image signature"},"optional":null}`, memoryRepository, d)
	layer, err := h.m.PutBlob(t.Context(), memoryRepository, []byte(payload))
	require.NoError(t, err)
	require.NoError(t, h.m.PutManifest(t.Context(), memoryRepository, catalog.SignatureTag(d),
		withLayer(t, sig, layer, signedBytes(t, h.keys[key][0], []byte(payload)))))
	for _, tag := range []string{catalog.VersionTag(m.Channel, m.Version), m.Channel} {
		require.NoError(t, h.m.PutManifest(t.Context(), memoryRepository, tag, body))
	}
}

// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

const velum = "registry.suse.com/caasp/v4/velum"

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// build is the n-th build of velum.
func build(n int) catalog.Release {
	return catalog.Release{
		Tag: fmt.Sprintf("4.0.0-rev1-build1.%d", n), Digest: digest.FromString(fmt.Sprint(n)), Created: noon.Add(time.Duration(n) * time.Hour),
	}
}

func opTag(n int) string { return fmt.Sprintf("op-prod-20261122T%02d0000Z-%012x", n%24, n) }

func isErrorOf(err error, kind catalog.Kind) bool {
	e, ok := err.(*catalog.Error) //nolint:errorlint // the decoders return it unwrapped
	return ok && e.Kind == kind
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

func hex8(n int) string { return fmt.Sprintf("%08x", n) }

func refTo(image string, data []byte) catalog.PageRef {
	return catalog.PageRef{Image: image, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

func packed(t require.TestingT, text string) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestUnknownFieldsOfAReleaseAreKept(t *testing.T) {
	t.Parallel()
	text := fmt.Sprintf(
		`{"image":%q,"later":1,"releases":[{"tag":"1-rev1-build1.1","digest":%q,"kernel":">=6","critical":["kernel"]}]}`,
		velum, digest.FromString("1"),
	)
	data := packed(t, text)
	p, err := catalog.DecodePage(data, refTo(velum, data))
	require.NoError(t, err)
	assert.Equal(t, "kernel", p.Releases[0].UnknownCritical())
	data, err = p.Encode()
	require.NoError(t, err)
	p, err = catalog.DecodePage(data, refTo(velum, data))
	require.NoError(t, err)
	assert.JSONEq(t, `">=6"`, string(p.Releases[0].Unknown["kernel"]))
}

func TestPagesThatAreRefused(t *testing.T) {
	t.Parallel()
	release := fmt.Sprintf(`{"tag":"1-rev1-build1.1","digest":%q}`, digest.FromString("1"))
	page := func(releases string) []byte {
		return packed(t, fmt.Sprintf(`{"image":%q,"releases":[%s]}`, velum, releases))
	}
	for name, c := range map[string]struct {
		data []byte
		kind catalog.Kind
	}{
		"no gzip":         {[]byte("{}"), catalog.KindFormat},
		"no JSON":         {packed(t, "hello"), catalog.KindFormat},
		"another image":   {packed(t, `{"image":"r.example/other","releases":[]}`), catalog.KindPage},
		"a bomb":          {packed(t, repeat(" ", catalog.MaxPage+1)), catalog.KindTooLarge},
		"twice":           {page(release + "," + release), catalog.KindFormat},
		"no digest":       {page(`{"tag":"1-rev1-build1.1","digest":"sha256:1"}`), catalog.KindFormat},
		"a tag with /":    {page(fmt.Sprintf(`{"tag":"a/b","digest":%q}`, digest.FromString("1"))), catalog.KindFormat},
		"a control code":  {page(fmt.Sprintf(`{"tag":"1","digest":%q,"set":"a\u001b[2J"}`, digest.FromString("1"))), catalog.KindFormat},
		"an endless wait": {page(fmt.Sprintf(`{"tag":"1","digest":%q,"rollout":{"from":"2026-11-22T12:00:00Z","hours":99999}}`, digest.FromString("1"))), catalog.KindFormat},
		"members, no set": {page(fmt.Sprintf(`{"tag":"1","digest":%q,"members":["r.example/a:1"]}`, digest.FromString("1"))), catalog.KindFormat},
		"no member":       {page(fmt.Sprintf(`{"tag":"1","digest":%q,"set":"s","members":["r.example/a"]}`, digest.FromString("1"))), catalog.KindFormat},
		"unsorted":        {page(fmt.Sprintf(`{"tag":"1","digest":%q,"set":"s","members":["r.example/b:1","r.example/a:1"]}`, digest.FromString("1"))), catalog.KindFormat},
		"again, no op":    {page(fmt.Sprintf(`{"tag":"1","digest":%q,"again":{"op":"velum"}}`, digest.FromString("1"))), catalog.KindFormat},
		"gone by no op":   {page(fmt.Sprintf(`{"tag":"1","digest":%q,"withdrawn":{"at":"2026-11-22T12:00:00Z","reason":"bsc#1","op":"velum"}}`, digest.FromString("1"))), catalog.KindFormat},
		"no reason":       {page(fmt.Sprintf(`{"tag":"1","digest":%q,"withdrawn":{"at":"2026-11-22T12:00:00Z","reason":""}}`, digest.FromString("1"))), catalog.KindFormat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := catalog.DecodePage(c.data, refTo(velum, c.data))
			assert.True(t, isErrorOf(err, c.kind), "%v", err)
		})
	}
	data := page(release)
	ref := refTo(velum, data)
	ref.Digest = digest.FromString("lies")
	_, err := catalog.DecodePage(data, ref)
	assert.True(t, isErrorOf(err, catalog.KindPage), "%v", err)
}

// What a publisher says of a withdrawal is shown on nodes: it is one printable line, or the page and the op are refused.
func TestTextsOfWithdrawals(t *testing.T) {
	t.Parallel()
	for title, w := range map[string]catalog.Withdrawal{
		"none":                  {At: noon},
		"an escape sequence":    {At: noon, Reason: "bsc#1\x1b[2J"},
		"a line break":          {At: noon, Reason: "bsc#1\nall is well"},
		"a carriage return":     {At: noon, Reason: "bsc#1\rall is well"},
		"right to left":         {At: noon, Reason: "bsc#1 \u202e"},
		"too long":              {At: noon, Reason: repeat("x", 513)},
		"no tag to run instead": {At: noon, Reason: "bsc#1", To: "a b"},
		"no time":               {At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), Reason: "bsc#1"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := build(1)
			r.Withdrawn = &w
			_, err := catalog.Page{Image: velum, Releases: []catalog.Release{r}}.Encode()
			assert.True(t, isErrorOf(err, catalog.KindFormat), "%v", err)
			text, err := json.Marshal(map[string]any{"image": velum, "releases": []any{r}})
			require.NoError(t, err)
			data := packed(t, string(text))
			_, err = catalog.DecodePage(data, refTo(velum, data))
			assert.True(t, isErrorOf(err, catalog.KindFormat), "%v", err)
			op, err := json.Marshal(catalog.Op{
				Tag: opTag(1), Name: "registry.example.com/catalog", Channel: "prod", Do: catalog.ActionWithdraw,
				Changes: []catalog.Change{{Image: velum, Release: r}},
			})
			require.NoError(t, err)
			_, err = catalog.DecodeOp(opTag(1), op)
			assert.True(t, isErrorOf(err, catalog.KindFormat), "%v", err)
		})
	}
	r := build(1)
	r.Withdrawn = &catalog.Withdrawal{At: noon, Reason: "bsc#1199876: verliert die Sitzung, größtenteils", To: "4.0.0-rev1-build1.2"}
	_, err := catalog.Page{Image: velum, Releases: []catalog.Release{r}}.Encode()
	require.NoError(t, err)
}

func manifest() catalog.Manifest {
	return catalog.Manifest{
		Name: "registry.example.com/catalog", Channel: "prod", Version: 31, Created: noon,
		Previous: digest.FromString("30"), Merged: []string{opTag(1), opTag(2)},
		Times: catalog.Times{
			Expires: noon.Add(24 * time.Hour), Refreshed: catalog.Mark{Op: opTag(2), Turn: 5},
			Frozen: noon.Add(time.Hour), Freeze: catalog.Mark{Op: opTag(1), Turn: 4}, Turn: 7,
		},
		Log:   []catalog.BlobRef{{Digest: digest.FromString("log"), Size: 30}, {Digest: digest.FromString("later"), Size: 20}},
		Ops:   catalog.BlobRef{Digest: digest.FromString("ops"), Size: 20},
		Pages: []catalog.PageRef{{Image: velum, Digest: digest.FromString("page"), Size: 100}},
	}
}

func TestManifestsAreDecodedAsEncoded(t *testing.T) {
	t.Parallel()
	data, d, err := manifest().Encode()
	require.NoError(t, err)
	assert.Equal(t, digest.FromBytes(data), d)
	got, err := catalog.DecodeManifest(data)
	require.NoError(t, err)
	assert.Equal(t, manifest(), got)
	ref, ok := got.Page(velum)
	assert.True(t, ok)
	assert.EqualValues(t, 100, ref.Size)
	_, ok = got.Page("r.example/other")
	assert.False(t, ok)
	m := manifest()
	m.Pages = nil
	data, _, err = m.Encode()
	require.NoError(t, err)
	got, err = catalog.DecodeManifest(data)
	require.NoError(t, err)
	assert.Equal(t, m, got)
}

func TestManifestsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(doc map[string]any)
		kind catalog.Kind
	}{
		"another artifact type": {func(doc map[string]any) { doc["artifactType"] = "application/vnd.kubic.image-catalog.v2" }, catalog.KindFormat},
		"no version": {func(doc map[string]any) {
			delete(doc["annotations"].(map[string]any), "org.kubic.image-catalog.version")
		}, catalog.KindFormat},
		"version 0":             {note("version", "0"), catalog.KindFormat},
		"a bad time":            {note("expires", "tomorrow"), catalog.KindFormat},
		"a bad channel":         {note("channel", "op-prod-20261122T120000Z-000000000000"), catalog.KindFormat},
		"a bad name":            {note("name", "Catalog"), catalog.KindFormat},
		"a bad freeze":          {note("freeze", "prod"), catalog.KindFormat},
		"a bad end of a freeze": {note("frozen", "tomorrow"), catalog.KindFormat},
		"a long log": {func(doc map[string]any) {
			layers := doc["layers"].([]any)
			doc["layers"] = slices.Concat(layers, slices.Repeat(layers[1:2], catalog.MaxLogParts))
		}, catalog.KindTooLarge},
		"a large part of a log": {func(doc map[string]any) { doc["layers"].([]any)[1].(map[string]any)["size"] = 9 << 20 }, catalog.KindTooLarge},
		"a large page":          {func(doc map[string]any) { layer(doc)["size"] = catalog.MaxPage + 1 }, catalog.KindTooLarge},
		"a page of no image":    {func(doc map[string]any) { delete(layer(doc), "annotations") }, catalog.KindFormat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, _, err := manifest().Encode()
			require.NoError(t, err)
			var doc map[string]any
			require.NoError(t, json.Unmarshal(data, &doc))
			c.edit(doc)
			data, err = json.Marshal(doc)
			require.NoError(t, err)
			_, err = catalog.DecodeManifest(data)
			assert.True(t, isErrorOf(err, c.kind), "%v", err)
		})
	}
	_, err := catalog.DecodeManifest(make([]byte, catalog.MaxManifest+1))
	assert.True(t, isErrorOf(err, catalog.KindTooLarge), "%v", err)
}

func note(key, value string) func(map[string]any) {
	return func(doc map[string]any) { doc["annotations"].(map[string]any)["org.kubic.image-catalog."+key] = value }
}

func layer(doc map[string]any) map[string]any { return doc["layers"].([]any)[0].(map[string]any) }

func TestManifestHoldsAsManyImagesAsItMay(t *testing.T) {
	t.Parallel()
	m := manifest()
	m.Pages = nil
	for n := range catalog.MaxImages {
		m.Pages = append(m.Pages, catalog.PageRef{Image: "r.example/i" + hex8(n), Digest: digest.FromString("page"), Size: 100})
	}
	data, _, err := m.Encode()
	require.NoError(t, err)
	assert.Less(t, len(data), 100_000, "bytes that each node reads")
	got, err := catalog.DecodeManifest(data)
	require.NoError(t, err)
	blobs, err := m.ShardBlobs()
	require.NoError(t, err)
	require.Len(t, blobs, len(got.Shards))
	var shards [][]catalog.PageRef
	for _, ref := range got.Shards {
		pages, err := catalog.DecodeShard(blobs[ref.Digest], ref)
		require.NoError(t, err)
		shards = append(shards, pages)
		for _, p := range pages {
			found, ok := got.Shard(p.Image)
			require.True(t, ok)
			require.Equal(t, ref, found)
		}
	}
	_, ok := got.Shard("a.example/before")
	assert.False(t, ok)
	require.NoError(t, got.Join(shards...))
	assert.Equal(t, m, got)
	require.Error(t, got.Join(shards[1], shards[0]), "not sorted")
	m.Pages = append(m.Pages, catalog.PageRef{Image: "r.example/z", Digest: digest.FromString("page"), Size: 100})
	_, _, err = m.Encode()
	assert.True(t, isErrorOf(err, catalog.KindTooLarge), "%v", err)
}

func TestFollows(t *testing.T) {
	t.Parallel()
	m := manifest()
	d := digest.FromString("31")
	for name, c := range map[string]struct {
		known   catalog.Known
		name    string
		channel string
		now     time.Time
		kind    catalog.Kind
	}{
		"the first":                         {catalog.Known{}, m.Name, m.Channel, noon, ""},
		"the next":                          {catalog.Known{Version: 30, Digest: "sha256:30"}, m.Name, m.Channel, noon, ""},
		"the same":                          {catalog.Known{Version: 31, Digest: d}, m.Name, m.Channel, noon, ""},
		"another digest":                    {catalog.Known{Version: 31, Digest: "sha256:other"}, m.Name, m.Channel, noon, catalog.KindChanged},
		"older":                             {catalog.Known{Version: 32}, m.Name, m.Channel, noon, catalog.KindOlder},
		"another name":                      {catalog.Known{}, "r.example/catalog", m.Channel, noon, catalog.KindName},
		"another channel":                   {catalog.Known{}, m.Name, "stage", noon, catalog.KindChannel},
		"from the future":                   {catalog.Known{}, m.Name, m.Channel, noon.Add(-25 * time.Hour), catalog.KindFuture},
		"a clock that is behind by an hour": {catalog.Known{}, m.Name, m.Channel, noon.Add(-time.Hour), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := m.Follows(c.known, d, c.name, c.channel, c.now)
			if c.kind == "" {
				require.NoError(t, err)
				return
			}
			assert.True(t, isErrorOf(err, c.kind), "%v", err)
		})
	}
}

// A key that leaked cannot use up the numbers of versions.
func TestFollowsNoVersionThatIsFarAbove(t *testing.T) {
	t.Parallel()
	m := manifest()
	for version, known := range map[uint64]uint64{catalog.MaxJump + 6: 7, catalog.MaxVersion: 0, catalog.MaxJump + 7: 6, catalog.MaxVersion - 1: 31} {
		m.Version = version
		err := m.Follows(catalog.Known{Version: known}, digest.FromString("far"), m.Name, m.Channel, noon)
		assert.Equal(t, known > 0 && version-known >= catalog.MaxJump, isErrorOf(err, catalog.KindFormat), "%d after %d: %v", version, known, err)
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	channel, version, ok := catalog.ParseVersionTag(catalog.VersionTag("prod-v1", 31))
	assert.True(t, ok)
	assert.Equal(t, "prod-v1", channel)
	assert.EqualValues(t, 31, version)
	for _, tag := range []string{"prod", "prod-v31", "-v00000031", "prod-v00000000", "prod-v+0000031"} {
		_, _, ok = catalog.ParseVersionTag(tag)
		assert.False(t, ok, tag)
	}
	for _, tag := range []string{
		"op-", "op-prod-20261122T120000Z", "op-20261122T120000Z-000000000000", "op-prod-20261122T120000Z-00000000000G", "prod",
		"op-prod-20261122T120000Z-00000000000A", "op-prod-20261322T120000Z-000000000000", "op-P-20261122T120000Z-000000000000",
		"op-prod-20261122T120000Z-0000000000000", "op-prod-20261122T120000Z_000000000000", "op--20261122T120000Z-000000000000",
	} {
		assert.False(t, catalog.IsOpTag(tag), tag)
	}
	for _, name := range []string{"", "Prod", "1", "prod/x", "prod-v00000031", "sha256-1", repeat("a", 65)} {
		require.Error(t, catalog.CheckChannel(name), name)
	}
	require.NoError(t, catalog.CheckChannel("stage.2_x-y"))
}

// The tag of an op has its channel and its time. No two are equal, and they need no order.
func TestOpTagsHaveTheirChannelAndTheirTime(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		tag := catalog.NewOpTag("prod-x", noon)
		channel, ok := catalog.OpChannel(tag)
		require.True(t, ok, tag)
		require.Equal(t, "prod-x", channel)
		require.Equal(t, noon, catalog.Op{Tag: tag}.At())
		require.False(t, seen[tag])
		seen[tag] = true
	}
}

func TestListsOfOps(t *testing.T) {
	t.Parallel()
	want := []string{opTag(1), opTag(2), opTag(3)}
	data, err := catalog.EncodeOps(want)
	require.NoError(t, err)
	ref := catalog.BlobRef{Digest: digest.FromBytes(data), Size: int64(len(data))}
	got, err := catalog.DecodeOps(data, ref)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	_, err = catalog.DecodeOps(data[1:], ref)
	assert.True(t, isErrorOf(err, catalog.KindPage), "%v", err)
	for _, text := range []string{"prod\n", opTag(2) + "\n" + opTag(1) + "\n", repeat(" ", 9<<20)} {
		data := packed(t, text)
		_, err = catalog.DecodeOps(data, catalog.BlobRef{Digest: digest.FromBytes(data), Size: int64(len(data))})
		assert.True(t, isErrorOf(err, catalog.KindFormat), "%v", err)
	}
	_, err = catalog.EncodeOps(slices.Repeat(want, 100_000))
	assert.True(t, isErrorOf(err, catalog.KindTooLarge), "%v", err)
}

// A field that is not known is found, however it is written, and what looks like one in a value is none.
func TestUnknownFieldsAreFoundHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	const known = `"tag":"1","digest":"sha256:1","set":"a\"x\":","members":["\"y\":"],"rollout":{"z":1,"from":"2026-01-02T03:04:05Z","hours":1}`
	for more, want := range map[string]int{
		"": 0, `,"new":1`: 1, `,"a" : {"tag":2}, "b":[{"x":1}]`: 2, `,"\u006eew":1`: 1, `,"op":"x"`: 0,
	} {
		var r catalog.Release
		require.NoError(t, json.Unmarshal([]byte("{"+known+more+"}"), &r), more)
		assert.Len(t, r.Unknown, want, more)
	}
}

func TestOpManifests(t *testing.T) {
	t.Parallel()
	for _, want := range [][]string{nil, {"c2ln"}, {"c2ln", "b3RoZXI=", "bW9yZQ=="}} {
		data, err := catalog.OpManifest([]byte(`{"op":1}`), want...)
		require.NoError(t, err)
		op, signatures, err := catalog.ReadOpManifest(data)
		require.NoError(t, err)
		assert.JSONEq(t, `{"op":1}`, string(op))
		assert.Len(t, signatures, len(want))
		assert.Subset(t, signatures, want)
	}
	data, err := catalog.OpManifest([]byte(`{"op":1}`), slices.Repeat([]string{"c2ln"}, 65)...)
	require.NoError(t, err)
	_, _, err = catalog.ReadOpManifest(data)
	assert.True(t, isErrorOf(err, catalog.KindTooLarge), "%v", err)
	data, _, err = manifest().Encode()
	require.NoError(t, err)
	_, _, err = catalog.ReadOpManifest(data)
	assert.True(t, isErrorOf(err, catalog.KindFormat), "%v", err)
	_, _, err = catalog.ReadOpManifest(make([]byte, catalog.MaxManifest+1))
	assert.True(t, isErrorOf(err, catalog.KindTooLarge), "%v", err)
}

// A shard is what the manifest says, and nothing else.
func TestShardsThatAreRefused(t *testing.T) {
	t.Parallel()
	page := `{"image":"` + velum + `","digest":"` + digest.FromString("page").String() + `","size":100}`
	for title, c := range map[string]struct {
		text string
		kind catalog.Kind
	}{
		"good":              {`{"pages":[` + page + `]}`, ""},
		"empty":             {`{"pages":[]}`, catalog.KindFormat},
		"twice":             {`{"pages":[` + page + "," + page + `]}`, catalog.KindFormat},
		"not JSON":          {`{"pages":`, catalog.KindFormat},
		"too many":          {`{"pages":[` + repeat(page+",", 1000) + page + `]}`, catalog.KindFormat},
		"of another image":  {`{"pages":[` + strings.Replace(page, velum, "r.example.com/a", 1) + "," + page + `]}`, catalog.KindFormat},
		"a page of no size": {`{"pages":[` + strings.Replace(page, "100", "0", 1) + `]}`, catalog.KindTooLarge},
	} {
		data := packed(t, c.text)
		ref := catalog.ShardRef{First: velum, BlobRef: catalog.BlobRef{Digest: digest.FromBytes(data), Size: int64(len(data))}}
		_, err := catalog.DecodeShard(data, ref)
		if c.kind == "" {
			require.NoError(t, err, title)
			_, err = catalog.DecodeShard(data[1:], ref)
			assert.True(t, isErrorOf(err, catalog.KindPage), "%v", err)
			continue
		}
		assert.True(t, isErrorOf(err, c.kind), "%s: %v", title, err)
	}
}

// A log is packed in parts that readers take, and says of an op what people ask for.
func TestLogs(t *testing.T) {
	t.Parallel()
	var entries []catalog.Entry
	for n := range 12 {
		op := catalog.Op{
			Tag: opTag(n), Name: "registry.example.com/catalog", Channel: "prod", Do: catalog.ActionAdd, By: "anna",
			Sets: map[string][]string{"a": {velum + ":1"}}, SignedBy: []string{"sha256:1"},
		}
		for m := range 4000 {
			r := build(m)
			r.Members = []string{velum + ":1"}
			op.Changes = append(op.Changes, catalog.Change{Image: velum, Release: r})
		}
		entries = append(entries, catalog.NewEntry(op, uint64(n+1), noon))
	}
	parts, err := catalog.NewLog(entries...)
	require.NoError(t, err)
	assert.Greater(t, len(parts), 1)
	var got []catalog.Entry
	for _, part := range parts {
		data, err := part.Encode()
		require.NoError(t, err)
		ref := catalog.BlobRef{Digest: digest.FromBytes(data), Size: int64(len(data))}
		again, err := catalog.UnpackLog(data, ref)
		require.NoError(t, err)
		more, err := again.Entries()
		require.NoError(t, err)
		got = append(got, more...)
		_, err = catalog.UnpackLog(data[1:], ref)
		assert.True(t, isErrorOf(err, catalog.KindPage), "%v", err)
	}
	require.Len(t, got, 12)
	assert.Equal(t, []any{"anna", "sha256:1", uint64(3), build(7).Digest}, []any{got[2].By, got[2].Key, got[2].Version, got[2].Changes[7].Release.Digest})
	assert.Equal(t, time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC), got[2].At)
	assert.Empty(t, got[2].Sets)
	_, ok := parts[0].Join(parts[0])
	assert.False(t, ok, "two parts that are almost full")
	for _, text := range []string{"{}", `{"op":"` + opTag(1) + `","op":""}`} {
		_, err := catalog.Log(text).Entries()
		assert.True(t, isErrorOf(err, catalog.KindFormat), "%v", err)
	}
}

func FuzzLog(f *testing.F) {
	parts, err := catalog.NewLog(catalog.NewEntry(catalog.Op{
		Tag: opTag(1), Name: "registry.example.com/catalog", Channel: "prod", Do: catalog.ActionRefresh,
	}, 1, noon))
	require.NoError(f, err)
	f.Add([]byte(parts[0]))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := catalog.Log(data).Entries()
		if err != nil {
			return
		}
		_, err = catalog.NewLog(entries...)
		require.NoError(t, err)
	})
}

// A node that went by hours and from alone applies no release of a paused rollout, and goes on where it stood.
func TestRollouts(t *testing.T) {
	t.Parallel()
	at := func(hours int) time.Time { return noon.Add(time.Duration(hours) * time.Hour) }
	o := catalog.Rollout{From: noon, Hours: 40}
	paused := o.Pause(at(10))
	assert.Equal(t, paused, paused.Pause(at(20)), "paused twice")
	assert.Equal(t, []int{0, 25, 100}, []int{o.Share(at(-1)), o.Share(at(10)), o.Share(at(99))})
	assert.Equal(t, 25, paused.Share(at(99)))
	assert.Equal(t, o, o.Resume(at(10), 40), "it was not paused")
	assert.Equal(t, catalog.Rollout{From: at(20), Hours: 40}, paused.Resume(at(30), 40))
	assert.Equal(t, catalog.Rollout{From: at(10), Hours: 80}, paused.Resume(at(30), 80))
	later := catalog.Rollout{From: at(50), Hours: 40}
	assert.Equal(t, later, later.Pause(at(10)).Resume(at(20), 40), "it had not begun")
	assert.Equal(t, at(60), later.Pause(at(10)).Resume(at(60), 40).From)
	at0 := catalog.Rollout{From: at(50)}
	assert.Equal(t, []int{0, 100}, []int{at0.Share(at(49)), at0.Share(at(50))})
}

func TestOpsThatAreRefused(t *testing.T) {
	t.Parallel()
	good := catalog.Op{
		Tag: opTag(1), Name: "registry.example.com/catalog", Channel: "prod", Do: catalog.ActionAdd,
		Changes: []catalog.Change{{Image: velum, Release: build(1)}},
	}
	_, err := good.Encode()
	require.NoError(t, err)
	for name, edit := range map[string]func(*catalog.Op){
		"no name":                  func(o *catalog.Op) { o.Name = "" },
		"a note of nothing":        func(o *catalog.Op) { o.Do = catalog.ActionNote },
		"a publisher of two lines": func(o *catalog.Op) { o.By = "anna\nversion 9: bert" },
		"a long reason":            func(o *catalog.Op) { o.Reason = repeat("x", 513) },
		"frozen for ever":          func(o *catalog.Op) { o.Until = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) },
		"no channel":               func(o *catalog.Op) { o.Channel = "" },
		"of another channel":       func(o *catalog.Op) { o.Channel = "stage" },
		"nothing to do":            func(o *catalog.Op) { o.Do = "delete" },
		"no tag":                   func(o *catalog.Op) { o.Tag = "" },
		"no reason":                func(o *catalog.Op) { o.Do = catalog.ActionWithdraw },
		"no image":                 func(o *catalog.Op) { o.Changes = []catalog.Change{{Release: build(1)}} },
		"no release":               func(o *catalog.Op) { o.Changes = []catalog.Change{{Image: velum}} },
		"no member":                func(o *catalog.Op) { o.Sets = map[string][]string{"s": {"x"}} },
		"no set":                   func(o *catalog.Op) { o.Sets = map[string][]string{"": {velum + ":1"}} },
		"too many members": func(o *catalog.Op) {
			o.Sets = map[string][]string{"s": nil}
			for n := range 1000 {
				o.Sets["s"] = append(o.Sets["s"], fmt.Sprintf("%s:%04d", velum, n))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := good
			edit(&op)
			_, err := op.Encode()
			require.Error(t, err)
			data, err := json.Marshal(op)
			require.NoError(t, err)
			_, err = catalog.DecodeOp(op.Tag, data)
			require.Error(t, err)
		})
	}
	data, err := good.Encode()
	require.NoError(t, err)
	_, err = catalog.DecodeOp(opTag(2), data)
	assert.True(t, isErrorOf(err, catalog.KindFormat), "an op under a later tag is not the same op: %v", err)
}

func FuzzDecodePage(f *testing.F) {
	r := build(1)
	r.Advisory = &catalog.Advisory{Note: "a note", Fixes: []string{"CVE-2026-1234"}, Severity: "low"}
	data, err := (catalog.Page{Image: velum, Releases: []catalog.Release{r}}).Encode()
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := catalog.DecodePage(data, refTo(velum, data))
		if err != nil {
			return
		}
		again, err := p.Encode()
		require.NoError(t, err)
		got, err := catalog.DecodePage(again, refTo(velum, again))
		require.NoError(t, err)
		require.Len(t, got.Releases, len(p.Releases))
	})
}

func FuzzDecodeManifest(f *testing.F) {
	data, _, err := manifest().Encode()
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := catalog.DecodeManifest(data)
		if err != nil || len(m.Shards) > 0 { // whose pages are elsewhere
			return
		}
		again, _, err := m.Encode()
		require.NoError(t, err)
		got, err := catalog.DecodeManifest(again)
		require.NoError(t, err)
		require.Equal(t, m, got)
	})
}

func FuzzDecodeOp(f *testing.F) {
	data, err := catalog.Op{
		Tag: opTag(1), Name: "registry.example.com/catalog", Channel: "prod", Do: catalog.ActionAdd,
		Changes: []catalog.Change{{Image: velum, Release: build(1)}},
	}.Encode()
	require.NoError(f, err)
	f.Add(data)
	r := build(1)
	r.Advisory = &catalog.Advisory{Note: "a note", Fixes: []string{"CVE-2026-1234"}, Severity: "low"}
	data, err = catalog.Op{
		Tag: opTag(1), Name: "registry.example.com/catalog", Channel: "prod", Do: catalog.ActionNote,
		Changes: []catalog.Change{{Image: velum, Release: r}},
	}.Encode()
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		op, err := catalog.DecodeOp(opTag(1), data)
		if err != nil {
			return
		}
		_, err = op.Encode()
		require.NoError(t, err)
	})
}

func FuzzReadOpManifest(f *testing.F) {
	data, err := catalog.OpManifest([]byte(`{"op":1}`), "c2ln")
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		op, signatures, err := catalog.ReadOpManifest(data)
		if err != nil {
			return
		}
		again, err := catalog.OpManifest(op, signatures...)
		require.NoError(t, err)
		got, _, err := catalog.ReadOpManifest(again)
		require.NoError(t, err)
		require.Equal(t, op, got)
	})
}

func FuzzDecodeOps(f *testing.F) {
	data, err := catalog.EncodeOps([]string{opTag(1), opTag(2)})
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		ops, err := catalog.DecodeOps(data, catalog.BlobRef{Digest: digest.FromBytes(data), Size: int64(len(data))})
		if err != nil {
			return
		}
		_, err = catalog.EncodeOps(ops)
		require.NoError(t, err)
	})
}

func FuzzTags(f *testing.F) {
	f.Add(opTag(1))
	f.Add("prod-v00000031")
	f.Fuzz(func(t *testing.T, tag string) {
		if channel, ok := catalog.OpChannel(tag); ok {
			next := catalog.NewOpTag(channel, time.Time{})
			require.True(t, catalog.IsOpTag(next), next)
			require.Error(t, catalog.CheckChannel(tag))
		}
		if channel, version, ok := catalog.ParseVersionTag(tag); ok {
			require.Equal(t, tag, catalog.VersionTag(channel, version))
			require.Error(t, catalog.CheckChannel(tag))
		}
	})
}

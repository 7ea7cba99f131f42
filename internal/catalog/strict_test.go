// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Each document is good as it is, and refused after one change that lets two readers see two things.
func TestJSONIsReadInOneWay(t *testing.T) {
	t.Parallel()
	d := digest.FromString("1").String()
	page := fmt.Sprintf(`{"image":%q,"releases":[{"tag":"1-rev1-build1.1","digest":%q,"rollout":{"from":"2026-11-22T10:00:00Z","hours":48},"kernel":{"a":1,"A":2}}]}`, velum, d)
	const tag = "op-prod-20261122T100000Z-000000000000"
	op := fmt.Sprintf(`{"op":%q,"name":"r.example.com/catalog","channel":"prod","do":"add","changes":[{"image":%q,"release":{"tag":"1","digest":%q}}]}`, tag, velum, d)
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":%q,"layers":[{"mediaType":%q,"digest":%q,"size":1,"annotations":{"org.opencontainers.image.title":%q}}],`+
		`"annotations":{"org.kubic.image-catalog.name":"r.example.com/catalog","org.kubic.image-catalog.channel":"prod","org.kubic.image-catalog.version":"7","Digest":"x"}}`,
		catalog.ArtifactType, catalog.PageMediaType, d, velum)
	opManifest, err := catalog.OpManifest([]byte(op), "c2ln")
	require.NoError(t, err)
	for _, each := range []struct {
		name, good string
		read       func(text string) error
		edits      map[string]string
	}{
		{"page", page, func(text string) error {
			data := packed(t, text)
			_, err := catalog.DecodePage(data, refTo(velum, data))
			return err
		}, map[string]string{
			`{"image"`: `{"image":"x","image"`, `"releases":[`: `"Releases":[`, `"tag":`: `"tag":"2","tag":`, `"digest":`: `"DIGEST":`,
			`"hours":48`: `"hours":48,"hours":1`, `"from":`: `"From":`, `"kernel":`: `"kernel":1,"kernel":`, `{"a":1`: `{"a":0,"a":1`,
			`]}`: `]}{}`, `"tag":"1`: "\"tag\":\"\xff1", `"rollout":`: `"\u0072ollout":null,"rollout":`, `"hours"`: `"hour\u017f"`,
		}},
		{"op", op, func(text string) error {
			_, err := catalog.DecodeOp(tag, []byte(text))
			return err
		}, map[string]string{
			`"do":"add"`: `"do":"promote","do":"add"`, `"changes":`: `"Changes":`, `"image":`: `"image":"x","image":`,
			`"release":`: `"Release":`, `"digest":`: `"digest":"x","digest":`, `]}`: `]} x`,
		}},
		{"manifest", manifest, func(text string) error {
			_, err := catalog.DecodeManifest([]byte(text))
			return err
		}, map[string]string{
			`"layers":`: `"layers":[],"layers":`, `"artifactType"`: `"ArtifactType"`, `"size":1`: `"size":1,"size":2`,
			`"org.kubic.image-catalog.version":"7"`: `"org.kubic.image-catalog.version":"8","org.kubic.image-catalog.version":"7"`,
			`{"schemaVersion":2`:                    `{"schemaVersion":2,"manifests":[]`, `{"schemaVersion":2,`: `{"schemaVersion":1,`,
			`image.manifest`: `image.index`, `"annotations":{"org.kubic`: `"Annotations":{"org.kubic`, `"Digest":"x"}}`: `"Digest":"x"}}[]`,
		}},
		{"manifest of an op", string(opManifest), func(text string) error {
			_, _, err := catalog.ReadOpManifest([]byte(text))
			return err
		}, map[string]string{
			`"annotations":`: `"annotations":{},"annotations":`, `"artifactType"`: `"artifacttype"`, `{"schemaVersion":2`: `{"schemaVersion":2,"FSLayers":[]`,
			`"org.kubic.image-catalog.op":`: `"org.kubic.image-catalog.op":"{}","org.kubic.image-catalog.op":`,
		}},
	} {
		require.NoError(t, each.read(each.good), each.name)
		for from, to := range each.edits {
			require.Contains(t, each.good, from)
			text := strings.Replace(each.good, from, to, 1)
			assert.Error(t, each.read(text), "%s: %s", each.name, to)
		}
	}
}

// Nothing stands behind a page's packed text.
func TestNothingFollowsAPage(t *testing.T) {
	t.Parallel()
	one := packed(t, fmt.Sprintf(`{"image":%q,"releases":[]}`, velum))
	_, err := catalog.DecodePage(one, refTo(velum, one))
	require.NoError(t, err)
	for _, more := range [][]byte{packed(t, ""), packed(t, " "), {0}} {
		data := append(bytes.Clone(one), more...)
		_, err = catalog.DecodePage(data, refTo(velum, data))
		require.ErrorContains(t, err, "bytes too many")
	}
}

func TestVersionsAndRolloutsHaveEnds(t *testing.T) {
	t.Parallel()
	m := catalog.Manifest{Name: "r.example.com/catalog", Channel: "prod", Version: catalog.MaxVersion, Created: time.Unix(1e9, 0)}
	_, _, err := m.Encode()
	require.NoError(t, err)
	for _, version := range []uint64{0, catalog.MaxVersion + 1, 1<<64 - 1} {
		m.Version = version
		_, _, err = m.Encode()
		require.ErrorContains(t, err, "want 1 to", version)
		_, _, ok := catalog.ParseVersionTag(catalog.VersionTag("prod", version))
		assert.False(t, ok, version)
	}
	last := time.Date(9998, 12, 31, 0, 0, 0, 0, time.UTC)
	for _, rollout := range []struct {
		from  time.Time
		hours int
		good  bool
	}{
		{last, 23, true},
		{last, 24, false},
		{last.AddDate(-1, 0, 0), 24 * 366, false},
		{last.AddDate(0, 0, -1), 24, true},
		{last.AddDate(1, 0, 0), 0, false},
		{last, -1, false},
		{time.Unix(1e9, 0).UTC(), 24*366 + 1, false},
	} {
		p := catalog.Page{Image: velum, Releases: []catalog.Release{{
			Tag: "1-rev1-build1.1", Digest: digest.FromString("1"), Rollout: &catalog.Rollout{From: rollout.from, Hours: rollout.hours},
		}}}
		_, err := p.Encode()
		if rollout.good {
			assert.NoError(t, err, rollout)
		} else {
			assert.ErrorContains(t, err, "rollout", rollout)
		}
	}
}

// A codec that knows a list of members reads each page as one that knows none: what is written in another way than
// Encode does, too, and what stands in the place of a list.
func TestACodecReadsPagesAsAFreshOne(t *testing.T) {
	t.Parallel()
	const list = `["r.example/a:1","r.example/b:1"]`
	members := []string{"r.example/a:1", "r.example/b:1"}
	text := func(fields string) []byte {
		return packed(t, fmt.Sprintf(`{"image":%q,"releases":[{"tag":"1","digest":%q,%s}]}`, velum, digest.FromString("1"), fields))
	}
	read := func(t *testing.T, c *catalog.Codec, fields string) (catalog.Release, error) {
		t.Helper()
		data := text(fields)
		p, err := c.Decode(data, refTo(velum, data))
		if err != nil {
			return catalog.Release{}, err
		}
		return p.Releases[0], nil
	}
	second := fmt.Sprintf(`},{"tag":"2","digest":%q,"set":"s",`, digest.FromString("2"))
	for fields, want := range map[string][]string{
		`"set":"s","members":` + list:                                     members,
		`"set":"s","members" : [ "r.example/a:1","r.example/b:1"]`:        members,
		`"set":"members","members":` + list:                               members,
		`"set":"a\"s","members":` + list:                                  members,
		`"set":"s","\u006dembers":` + list:                                members,
		`"set":"s","x":{"members":["0"]},"members":` + list:               members,
		`"set":"s","members":["r.example/a:1"]`:                           {"r.example/a:1"},
		`"set":"s","members":["0"]`:                                       nil,
		`"set":"s","\u006dembers":["0"]`:                                  nil,
		`"set":"s","members":` + list + `,"\u006dembers":["0"]`:           nil,
		`"set":"s","members":` + list + `,"members":` + list:              nil,
		`"set":"s","Members":` + list:                                     nil,
		`"set":"s","members":["r.example/a:1]"]`:                          nil,
		`"set":"s","members":["r.example/b:1","r.example/a:1"]`:           nil,
		`"set":"s","members":["r.example/a:1",{"x":["r.example/b:1"]}]`:   nil,
		`"set":"s","members":["r.example/a:1"`:                            nil,
		`"members":` + list:                                               nil,
		`"set":"s","members":` + list + second + `"members":` + list:      members,
		`"set":"s","members":` + list + second + `"\u006dembers":` + list: members,
		`"set":"s","members":` + list + second + `"\u006dembers":["0"]`:   nil,
		`"set":"s","members":` + list + second + `"members" :["0"]`:       nil,
		`"set":"s","members":` + list + second + `"members":["0"]`:        nil,
	} {
		t.Run(fields, func(t *testing.T) {
			t.Parallel()
			c := &catalog.Codec{}
			_, err := read(t, c, `"set":"s","members":`+list)
			require.NoError(t, err)
			got, err := read(t, c, fields)
			fresh, errFresh := read(t, &catalog.Codec{}, fields)
			assert.Equal(t, fresh, got)
			assert.Equal(t, errFresh, err)
			assert.Equal(t, want == nil, err != nil, "%v", err)
			assert.Equal(t, want, got.Members)
		})
	}
}

// All releases of a set share one list, in all pages; what is written is checked all the same.
func TestACodecKeepsAListOnce(t *testing.T) {
	t.Parallel()
	c := &catalog.Codec{}
	var lists [][]string
	for _, image := range []string{"r.example/a", "r.example/b"} {
		r := catalog.Release{
			Tag: "1", Digest: digest.FromString(image), Set: "s", Members: []string{"r.example/a:1", "r.example/b:1"},
		}
		data, err := c.Encode(catalog.Page{Image: image, Releases: []catalog.Release{r}})
		require.NoError(t, err)
		plain, err := catalog.Page{Image: image, Releases: []catalog.Release{r}}.Encode()
		require.NoError(t, err)
		require.Equal(t, plain, data)
		p, err := c.Decode(data, refTo(image, data))
		require.NoError(t, err)
		lists = append(lists, p.Releases[0].Members)

		p.Releases[0].Set = ""
		_, err = c.Encode(p)
		require.Error(t, err, "members without a set")
	}
	assert.Equal(t, lists[0], lists[1])
	assert.Same(t, &lists[0][0], &lists[1][0])
	bad := catalog.Release{Tag: "1", Digest: digest.FromString("1"), Set: "s", Members: []string{"r.example/b:1", "r.example/a:1"}}
	for range 2 {
		_, err := c.Encode(catalog.Page{Image: "r.example/a", Releases: []catalog.Release{bad}})
		require.Error(t, err)
	}
}

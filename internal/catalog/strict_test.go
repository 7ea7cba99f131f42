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

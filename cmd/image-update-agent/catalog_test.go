// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
)

// catalogNode is a node that follows a catalog, with what it has verified.
func catalogNode(t *testing.T, releases ...catalog.Release) (root string) {
	t.Helper()
	const image = "registry.suse.com/caasp/v4/velum"
	root = t.TempDir()
	put(t, root, map[string]string{ourConfig: "catalog:\n  repository: registry.example.com/releases/catalog\n"})
	if len(releases) == 0 {
		return root
	}
	s, err := (&app{root: root}).settings()
	require.NoError(t, err)
	page, err := catalog.Page{Image: image, Releases: releases}.Encode()
	require.NoError(t, err)
	version, err := json.Marshal(map[string]any{
		"name": "registry.example.com/releases/catalog", "channel": "prod", "version": 12,
		"digest": digest.FromString("version 12"), "created": noonUTC,
		"images": map[string]digest.Digest{image: digest.FromBytes(page), "registry.suse.com/other": ""},
	})
	require.NoError(t, err)
	put(t, filepath.Join(s.StateDir, catalogDir), map[string]string{
		digest.FromBytes(page).Encoded() + ".page": string(page), "catalog.json": string(version),
	})
	return root
}

var noonUTC = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func listed(tag string, edit func(*catalog.Release)) catalog.Release {
	r := catalog.Release{Tag: tag, Digest: digest.FromString(tag), Created: noonUTC}
	if edit != nil {
		edit(&r)
	}
	return r
}

func TestCatalogShow(t *testing.T) {
	t.Parallel()
	root := catalogNode(t,
		listed("4.0.0-rev2-build1.5", func(r *catalog.Release) { r.Set = "caasp-4.5.2" }),
		listed("4.0.0-rev1-build1.4", func(r *catalog.Release) {
			r.Withdrawn = &catalog.Withdrawal{At: noonUTC, Reason: "bsc#1199876", To: "4.0.0-rev2-build1.5"}
		}),
		listed("4.0.0-rev1-build1.3", func(r *catalog.Release) {
			r.Rollout = &catalog.Rollout{From: noonUTC.AddDate(1000, 0, 0), Hours: 48}
		}))
	text := does(t, "catalog", "show", "--root", root)
	for _, line := range []string{
		"registry.example.com/releases/catalog:prod version 12", "Expires:     never", "registry.suse.com/caasp/v4/velum",
		"caasp-4.5.2", "withdrawn: bsc#1199876 (instead: 4.0.0-rev2-build1.5)", "rolls out to this node at 3026-",
	} {
		assert.Contains(t, text, line)
	}
	var shown statuspage.CatalogView
	require.NoError(t, json.Unmarshal([]byte(does(t, "catalog", "show", "--output", "json", "--root", root)), &shown))
	assert.EqualValues(t, 12, shown.Version)
	require.Len(t, shown.Images, 1)
	assert.Equal(t, "caasp-4.5.2", shown.Images[0].Releases[0].Set)
	assert.NotNil(t, shown.Images[0].Releases[2].RolloutAt)
}

func TestCatalogShowWithoutACatalog(t *testing.T) {
	t.Parallel()
	stored := func(name, text string) string {
		t.Helper()
		root := catalogNode(t)
		put(t, filepath.Join(root, "var/lib/image-update-agent", catalogDir), map[string]string{name: text})
		return root
	}
	for name, c := range map[string]struct {
		root string
		code int
		text string
	}{
		"not configured": {t.TempDir(), exitUsage, "no release catalog is configured"},
		"never verified": {catalogNode(t), exitNothing, "no version was verified yet"},
		"forgotten":      {stored("other", ""), exitNothing, "no version was verified yet"},
		"damaged":        {stored("catalog.json", "{"), exitFailed, "catalog/catalog.json: unexpected end of JSON"},
	} {
		code, out, errs := ends(t, "catalog", "show", "--root", c.root)
		assert.Equal(t, c.code, code, name)
		assert.Contains(t, out+errs, c.text, name)
		assert.NotContains(t, errs, "level=", name)
	}
}

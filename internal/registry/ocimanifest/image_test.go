// SPDX-License-Identifier: Apache-2.0

package ocimanifest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func document(layers ...int64) Document {
	d := Document{Config: ocispec.Descriptor{MediaType: images.MediaTypeDockerSchema2Config, Digest: digest.FromString("config"), Size: 10}}
	for _, size := range layers {
		d.Layers = append(d.Layers, ocispec.Descriptor{Size: size})
	}
	return d
}

func TestBuild(t *testing.T) {
	t.Parallel()
	got, platform, err := document(100, 200).Build([]byte(`{"os": "linux", "architecture": "x86_64",
		"created": "2020-09-01T14:00:00+02:00", "config": {"Labels": {
			"org.opencontainers.image.version": "4.0.0\u001b[2J",
			"org.opensuse.reference": "registry.suse.com/caasp/v4/velum:4.0.0-rev1-build1.3"}}}`))
	require.NoError(t, err)
	assert.Equal(t, Build{
		Config: digest.FromString("config"), Created: time.Date(2020, 9, 1, 12, 0, 0, 0, time.UTC), Size: 310,
		Version: "4.0.0 [2J", Origin: "caasp/v4/velum",
	}, got)
	assert.Equal(t, time.UTC, got.Created.Location())
	assert.Equal(t, ocispec.Platform{OS: "linux", Architecture: "amd64"}, platform)

	got, platform, err = document().Build([]byte(`{}`))
	require.NoError(t, err)
	assert.Equal(t, Build{Config: digest.FromString("config"), Size: 10}, got)
	assert.False(t, platforms.OnlyStrict(ocispec.Platform{OS: "linux", Architecture: "amd64"}).Match(platform))

	_, _, err = document().Build([]byte(`{"config": []}`))
	require.ErrorContains(t, err, "config: ")
	_, _, err = document(1<<62, 1<<62).Build([]byte(`{}`))
	require.ErrorContains(t, err, "overflow")
}

// A time that JSON cannot represent in every zone must not be accepted.
func TestCreatedCanBeWritten(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"9999-12-31T23:59:59-12:00": "9998-12-31T23:59:59Z",
		"9999-12-31T23:59:59Z":      "9998-12-31T23:59:59Z",
		"0000-01-01T00:00:00+12:00": "0001-01-01T00:00:00Z", // as if absent
		"2999-01-01T00:00:00Z":      "2999-01-01T00:00:00Z",
	} {
		got, _, err := document().Build([]byte(`{"created": "` + said + `"}`))
		require.NoError(t, err, said)
		text, err := json.Marshal(got.Created)
		require.NoError(t, err, said)
		assert.Equal(t, `"`+want+`"`, string(text))
	}
}

func TestImageConfig(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{MaxConfig - 1, MaxConfig, MaxConfig + 1} {
		d := document()
		d.Config.Size = size
		got, err := d.ImageConfig()
		if size > MaxConfig {
			require.ErrorContains(t, err, "config: too large: 4194305 bytes, at most 4194304")
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, d.Config, got)
	}
	d := document()
	d.Config.MediaType = "application/vnd.cncf.helm.config.v1+json"
	_, err := d.ImageConfig()
	require.ErrorContains(t, err, "not an image")
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 255) // the maximum length of a name
	for label, want := range map[string]string{
		"registry.suse.com/caasp/v4/velum:4.0.0-rev1-build1.3":       "caasp/v4/velum",
		"registry.suse.com/caasp/v4/velum":                           "caasp/v4/velum",
		"registry.suse.com/suse/sle15:15.1.6.2.155":                  "suse/sle15",
		"localhost:5000/app:1":                                       "app",
		"registry.suse.com/app:1@" + digest.FromString("x").String(): "app",
		"registry.suse.com/" + long + ":" + strings.Repeat("t", 128): long,
		"registry.suse.com/" + long + "a:1":                          "",
		"registry.suse.com/app:" + strings.Repeat("t", 129):          "",
		"":                                "",
		"caasp/v4/velum:4.0.0":            "", // without a host
		"velum":                           "",
		"registry.suse.com/Velum:1":       "",
		"registry.suse.com/velum:%%TAG%%": "",
		" registry.suse.com/velum:1":      "",
		"registry.suse.com/velum:1\n":     "",
		"registry.suse.com/../velum:1":    "",
		"registry.suse.com//velum:1":      "",
		"registry.suse.com/":              "",
		"https://registry.suse.com/a:1":   "",
		"registry.suse.com/a:1\x1b[2J":    "",
	} {
		assert.Equal(t, want, origin(label), label)
	}
}

// For any label, an origin is the path of a repository, or empty.
func FuzzOrigin(f *testing.F) {
	f.Add("registry.suse.com/caasp/v4/velum:4.0.0-rev1-build1.3")
	f.Add("velum")
	f.Fuzz(func(t *testing.T, label string) {
		got := origin(label)
		if got == "" {
			return
		}
		named, err := reference.ParseNamed("registry.example.com/" + got)
		require.NoError(t, err)
		assert.Equal(t, got, reference.Path(named))
		assert.Contains(t, label, "/"+got)
	})
}

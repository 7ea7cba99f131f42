// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

func TestPollOf20ImagesIs20Heads(t *testing.T) {
	t.Parallel()
	host := startDistribution(t)
	var refs []release.Reference
	want := map[release.Reference]digest.Digest{}
	for i := range 20 {
		ref := release.Reference{Repository: fmt.Sprintf("%s/caasp/v4/app%d", host, i), Tag: "1.0-rev1"}
		img := testImage(t, "linux/amd64")
		push(t, ref.String(), img)
		d, err := img.Digest()
		require.NoError(t, err)
		refs, want[ref] = append(refs, ref), digest.Digest(d.String())
	}
	r, rec := newRegistry(t, certsD(t, host, plainHTTP(host)))
	for cycle := range 2 {
		for _, ref := range refs {
			got, err := r.Resolve(t.Context(), ref)
			require.NoError(t, err)
			assert.Equal(t, release.Resolved{Digest: want[ref], Host: host, Insecure: true}, got)
		}
		assert.Equal(t, uint64(20*(cycle+1)), r.Counts().Requests)
	}
	for _, line := range rec.lines() {
		assert.True(t, strings.HasPrefix(line, http.MethodHead+" "), line)
	}
	assertKept(t, r, 1)
	assert.Zero(t, r.Counts().Tokens)
	assert.NotZero(t, r.Counts().Sent)
	assert.NotZero(t, r.Counts().Received)
}

func TestRealRegistry(t *testing.T) {
	t.Parallel()
	host := startDistribution(t)
	repository := host + "/caasp/v4/velum"
	img := testImage(t, "linux/amd64")
	other := testImage(t, "linux/arm64")
	push(t, repository+":4.0.0-rev1", img)
	push(t, repository+":arm", other)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	push(t, repository+":index", index)
	push(t, repository+":empty", empty.Index)
	r, _ := newRegistry(t, certsD(t, host, plainHTTP(host)))
	resolve := func(tag string) digest.Digest {
		got, err := r.Resolve(t.Context(), release.Reference{Repository: repository, Tag: tag})
		require.NoError(t, err)
		return got.Digest
	}
	want := build(t, img)

	got, err := r.Describe(t.Context(), repository, resolve("4.0.0-rev1"))
	require.NoError(t, err)
	assert.Equal(t, want, got, "manifest")
	got, err = r.Describe(t.Context(), repository, resolve("index"))
	require.NoError(t, err)
	want.Manifest = resolve("4.0.0-rev1") // a signature may cover only this digest
	assert.Equal(t, want, got, "index")
	want.Manifest = ""

	for _, tag := range []string{"arm", "empty"} {
		_, err = r.Describe(t.Context(), repository, resolve(tag))
		assert.ErrorIs(t, err, release.ErrPlatform, tag)
	}
	names, err := r.Tags(t.Context(), repository)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"4.0.0-rev1", "arm", "index", "empty"}, names)
}

// build returns the expected result of Describe for an image of testImage.
func build(t testing.TB, img v1.Image) release.Build {
	t.Helper()
	config, err := img.ConfigFile()
	require.NoError(t, err)
	manifest, err := img.Manifest()
	require.NoError(t, err)
	size := manifest.Config.Size
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	return release.Build{
		Config:  digest.Digest(manifest.Config.Digest.String()),
		Created: config.Created.Time,
		Size:    size,
		Version: "4.0.0",
		Origin:  "caasp/v4/velum",
	}
}

func TestRealRegistryHasNot(t *testing.T) {
	t.Parallel()
	host := startDistribution(t)
	push(t, host+"/app:1", testImage(t, "linux/amd64"))
	r, _ := newRegistry(t, certsD(t, host, plainHTTP(host)))
	asks := map[string]func() error{
		"tag": func() error {
			_, err := r.Resolve(t.Context(), release.Reference{Repository: host + "/app", Tag: "2"})
			return err
		},
		"repository": func() error {
			_, err := r.Tags(t.Context(), host+"/none")
			return err
		},
		"digest": func() error {
			_, err := r.Describe(t.Context(), host+"/app", digest.FromString("gone"))
			return err
		},
	}
	for what, ask := range asks {
		err := ask()
		require.ErrorIs(t, err, release.ErrNotFound, what)
		var source *release.SourceError
		require.ErrorAs(t, err, &source, what)
		assert.Equal(t, http.StatusNotFound, source.Status, what)
		assert.Equal(t, host, source.Host, what)
		assert.Contains(t, err.Error(), "upstream "+host+": 404: not found", what)
	}
}

func TestTLSWithOwnCA(t *testing.T) {
	t.Parallel()
	ca, cert, key := certificate(t)
	otherCA, _, _ := certificate(t)
	host := startDistribution(t, cert, key)
	config := func(line string) string { return "server = \"https://" + host + "\"\n" + line + "\n" }
	hostsFiles := map[string]struct {
		toml, wantErr string
	}{
		"its ca":      {toml: config(`ca = "` + ca + `"`), wantErr: "404"},
		"no ca":       {toml: config(""), wantErr: "certificate signed by unknown authority"},
		"another ca":  {toml: config(`ca = "` + otherCA + `"`), wantErr: "certificate signed by unknown authority"},
		"skip_verify": {toml: config("skip_verify = true"), wantErr: "404"},
	}
	for title, file := range hostsFiles {
		r, _ := newRegistry(t, certsD(t, host, file.toml))
		_, err := r.Resolve(t.Context(), release.Reference{Repository: host + "/app", Tag: "1"})
		assert.ErrorContains(t, err, file.wantErr, title)
	}
}

func TestInsecureIsReported(t *testing.T) {
	t.Parallel()
	f := newTLSFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	hostsFiles := map[string]bool{
		f.tlsHost(t): false,
		"server = \"https://" + f.host() + "\"\nskip_verify = true\n": true,
	}
	for toml, insecure := range hostsFiles {
		r, _ := newRegistry(t, certsD(t, f.host(), toml))
		got, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
		require.NoError(t, err)
		assert.Equal(t, insecure, got.Insecure, toml)
	}
}

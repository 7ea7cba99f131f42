// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// long is a long tag of the form that the Open Build Service uses.
const long = "4.0.0-rev1-build1.1"

// ask sends one request to a registry's front on a new connection, with the given Accept header.
func ask(ctx context.Context, r *node.Registry, method, path string) (status int, digest string, err error) {
	transport := &http.Transport{DisableKeepAlives: true}
	url := "http://" + r.Host + path
	if r.CA != "" {
		pem, err := os.ReadFile(r.CA)
		if err != nil {
			return 0, "", err
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem)
		url = "https://" + r.Host + path
	}
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Accept", string(types.DockerManifestSchema2))
	request.Header.Set("User-Agent", "rig")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header.Get("Docker-Content-Digest"), err
}

func TestRegistryCountsRequests(t *testing.T) {
	t.Parallel()
	for _, tls := range []bool{false, true} {
		r := node.Start(t, node.Options{TLS: tls}).Registry
		digest := r.Publish("demo/velum", long, node.Image{Layers: []node.Layer{{Seed: 1, Size: 1 << 20}}})
		require.Empty(t, r.Requests(), "publishing is not counted")

		for _, tag := range []string{"4.0.0", "4.0.0-rev1", long} {
			status, got, err := ask(t.Context(), r, "HEAD", "/v2/demo/velum/manifests/"+tag)
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, status)
			assert.Equal(t, digest, got)
		}
		for _, path := range []string{"/v2/", "/v2/demo/velum/tags/list", "/v2/demo/velum/manifests/4.0.1", "/v2/_catalog"} {
			_, _, err := ask(t.Context(), r, "GET", path)
			require.NoError(t, err)
		}
		requests := r.Requests()
		require.Len(t, requests, 7)
		assert.Equal(t, 3, requests.Count("HEAD", node.Manifest))
		assert.Equal(t, 4, requests.Count("", node.Manifest))
		assert.Equal(t, 1, requests.Count("GET", node.Ping))
		assert.Equal(t, 1, requests.Count("GET", node.Tags))
		assert.Equal(t, 1, requests.Count("GET", node.Other))
		assert.Positive(t, requests.Bytes(node.Tags))
		missing := requests[5]
		missing.Start, missing.Bytes = time.Time{}, 0
		assert.Equal(t, node.Request{
			Method: "GET", Kind: node.Manifest, Repository: "demo/velum", Reference: "4.0.1", Status: 404, UserAgent: "rig",
		}, missing)
		r.Forget()
		assert.Empty(t, r.Requests())
	}
}

func TestRegistryMisbehaves(t *testing.T) {
	t.Parallel()
	r := node.Start(t, node.Options{}).Registry
	digest := r.Publish("demo/velum", long, node.Image{})
	const path = "/v2/demo/velum/manifests/4.0.0"
	host := r.Host

	r.Down()
	_, _, err := ask(t.Context(), r, "HEAD", path)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	r.Push("demo/other", node.Image{}, "1")
	r.Up()
	assert.Equal(t, host, r.Host)
	status, _, err := ask(t.Context(), r, "HEAD", path)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)

	r.Intercept(node.Fail(node.Manifest, http.StatusTooManyRequests))
	status, _, err = ask(t.Context(), r, "HEAD", path)
	require.NoError(t, err)
	assert.Equal(t, http.StatusTooManyRequests, status)
	status, _, err = ask(t.Context(), r, "GET", "/v2/")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status, "another kind is let through")

	r.Intercept(node.Hang(node.Manifest))
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err = ask(impatient, r, "HEAD", path)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	r.Intercept(nil)
	r.Delete("demo/velum", digest)
	status, _, err = ask(t.Context(), r, "HEAD", path)
	require.NoError(t, err)
	assert.Equal(t, http.StatusNotFound, status)
}

func TestImagesAreWhatTheyAreDescribedAs(t *testing.T) {
	t.Parallel()
	r := node.Start(t, node.Options{}).Registry
	created := time.Date(2019, 5, 6, 7, 8, 9, 0, time.UTC)
	image := node.Image{
		Answer: "a", Created: created, Labels: map[string]string{"org.opensuse.reference": "x"},
		Layers: []node.Layer{{Seed: 7, Size: 100_000}, {Seed: 8, Size: 200_000}},
	}
	digest := r.Push("demo/a", image, "1")
	assert.Equal(t, digest, r.Push("demo/b", image), "equal descriptions")
	changed := image
	changed.Answer = "b"
	assert.NotEqual(t, digest, r.Push("demo/b", changed))
	r.Tag("demo/a", digest, "2")

	got := pull(t, r, "demo/a:2")
	config, err := got.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, created, config.Created.Time)
	assert.Equal(t, image.Labels, config.Config.Labels)
	manifest, err := got.Manifest()
	require.NoError(t, err)
	require.Len(t, manifest.Layers, 3)
	assert.Greater(t, manifest.Layers[2].Size, int64(200_000), "random bytes cannot be compressed")
	assert.Equal(t, types.DockerManifestSchema2, manifest.MediaType)

	image.OCI, image.Platforms = true, []string{"linux/s390x"}
	r.Push("demo/z", image, "1")
	got = pull(t, r, "demo/z:1")
	config, err = got.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "s390x", config.Architecture)
	manifest, err = got.Manifest()
	require.NoError(t, err)
	assert.Equal(t, types.OCIManifestSchema1, manifest.MediaType)
	assert.Equal(t, types.OCILayer, manifest.Layers[0].MediaType)

	image.Platforms = []string{"linux/amd64", "linux/arm64"}
	r.Push("demo/m", image, "1")
	ref, err := name.ParseReference(r.Ref("demo/m:1"))
	require.NoError(t, err)
	index, err := remote.Index(ref, remote.WithContext(t.Context()))
	require.NoError(t, err)
	list, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, list.Manifests, 2)
	assert.Equal(t, "linux/arm64", list.Manifests[1].Platform.String())
}

func pull(t *testing.T, r *node.Registry, image string) v1.Image {
	t.Helper()
	ref, err := name.ParseReference(r.Ref(image))
	require.NoError(t, err)
	got, err := remote.Image(ref, remote.WithContext(t.Context()))
	require.NoError(t, err)
	return got
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// catalogName is the catalog of docs/air-gap.md.
const catalogName = story.DocHost + "/releases/catalog"

// throughProxy has the publisher and the tools reach the registry by the name of the page: its front is their proxy.
func (p *publishers) throughProxy(t *testing.T, catalog string, tools ...string) {
	t.Helper()
	dirs := append([]string{filepath.Dir(p.program)}, tools...)
	proxy := "http://" + p.registry.Host
	p.env = []string{
		"PATH=" + strings.Join(append(dirs, os.Getenv("PATH")), ":"), "HOME=" + t.TempDir(), "IMAGE_CATALOG=" + catalog,
		"http_proxy=" + proxy, "https_proxy=" + proxy,
	}
}

// shell runs commands of the page.
func (p *publishers) shell(t *testing.T, dir, commands string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, p.env, &out, &out
	require.NoError(t, cmd.Run(), "%s\n%s", commands, &out)
}

// A mirror that was filled by the commands of docs/air-gap.md has each manifest byte for byte, each blob, and a catalog
// that verifies.
func TestMirrorsOfACatalog(t *testing.T) {
	t.Parallel()
	p := newPublishers(t, node.DockerRegistry)
	n := p.node
	programs := []string{n.Part("crane")}
	if node.Soak {
		programs = append(programs, n.Part("oras"), n.Part("regclient"))
	}
	p.throughProxy(t, catalogName, programs...)
	index := node.Image{Platforms: []string{"linux/amd64", "linux/arm64"}}
	signed := p.registry.Push("caasp/v4/velum", index, "4.0.0-rev1-build1.1")
	p.registry.PushSignature("caasp/v4/velum", signed, []byte(`{"critical":{}}`), "c2ln")
	p.registry.Publish("caasp/v4/etcd", "3.4-rev1-build1.1", node.Image{})
	p.registry.Publish("caasp/v4/etcd", "3.4-rev1-build1.2", node.Image{Answer: "two"})
	p.does(t, "init", "prod", "--plain-http", "--key", p.key)
	p.does(t, "add", "prod", "--plain-http", "--key", p.key, story.DocHost+"/caasp/v4/velum:4.0.0-rev1-build1.1",
		story.DocHost+"/caasp/v4/etcd:3.4-rev1-build1.1", story.DocHost+"/caasp/v4/etcd:3.4-rev1-build1.2")
	list := strings.Fields(p.does(t, "images", "prod", "--plain-http"))
	require.Len(t, list, 7, "three images, a signature, the catalog's version, channel and signature: %s", list)

	const images = "image-catalog images prod --plain-http"
	doc := story.AirGap(t, "## A mirror of a catalog")
	dir := t.TempDir()
	plain := func(text string) string {
		return strings.NewReplacer("image-catalog images prod", "image-catalog images prod --plain-http",
			"image-catalog verify prod", "image-catalog verify prod --plain-http",
			"crane copy", "crane copy --insecure", "prod.pub", p.pub).Replace(text)
	}
	fills := map[string]func(t *testing.T, mirror *node.Registry){
		"crane": func(t *testing.T, mirror *node.Registry) {
			p.shell(t, dir, strings.ReplaceAll(plain(doc.Block(t, "sh", 0)), story.DocMirror, mirror.Host))
		},
		"regsync": func(t *testing.T, mirror *node.Registry) {
			config := filepath.Join(dir, "regsync.yaml")
			p.shell(t, dir, images+" --format regsync --to "+mirror.Host+" >"+config)
			sync, err := os.ReadFile(config)
			require.NoError(t, err)
			creds := "creds:\n- {registry: " + story.DocHost + ", tls: disabled}\n- {registry: \"" + mirror.Host + "\", tls: disabled}\n"
			require.NoError(t, os.WriteFile(config, append([]byte(creds), sync...), 0o600))
			p.shell(t, dir, "regsync once -c "+config)
		},
		"oras": func(t *testing.T, mirror *node.Registry) {
			p.shell(t, dir, images+" --to "+mirror.Host+" | xargs -n 2 oras cp --from-plain-http --to-plain-http")
		},
		"skopeo": func(t *testing.T, mirror *node.Registry) {
			p.shell(t, dir, images+" --format skopeo-sync >prod.yaml")
			out, err := story.Skopeo(t, n, dir,
				"skopeo sync --all --preserve-digests --scoped --src yaml --dest docker prod.yaml "+mirror.Host)
			require.NoError(t, err, out)
		},
	}
	if !node.Soak {
		delete(fills, "oras")
		delete(fills, "regsync")
	}
	for tool, fill := range fills {
		t.Run(tool, func(t *testing.T) {
			mirror := n.StartRegistryWith(node.RegistryOptions{Program: node.Distribution3})
			fill(t, mirror)
			for _, line := range list {
				tagged, want, found := strings.Cut(line, "@")
				require.True(t, found)
				sameOnMirror(t, mirror.Host+"/"+tagged, want)
			}
			assert.ElementsMatch(t, list, onMirror(t, mirror.Host), "nothing else was copied")
			p.shell(t, dir, strings.ReplaceAll(plain(doc.Block(t, "sh", 1)), story.DocMirror, mirror.Host))
		})
	}
}

// onMirror are the tags of a mirror, as `images` lists them.
func onMirror(t *testing.T, host string) (list []string) {
	t.Helper()
	registry, err := name.NewRegistry(host, name.Insecure)
	require.NoError(t, err)
	repositories, err := remote.Catalog(t.Context(), registry)
	require.NoError(t, err)
	for _, repository := range repositories {
		tags, err := remote.List(registry.Repo(repository), remote.WithContext(t.Context()))
		require.NoError(t, err)
		for _, tag := range tags {
			d, err := remote.Head(registry.Repo(repository).Tag(tag), remote.WithContext(t.Context()))
			require.NoError(t, err)
			list = append(list, repository+":"+tag+"@"+d.Digest.String())
		}
	}
	return list
}

// sameOnMirror reads an image with all of its blobs, by a tag.
func sameOnMirror(t *testing.T, tagged, want string) {
	t.Helper()
	ref, err := name.NewTag(tagged, name.Insecure)
	require.NoError(t, err)
	d, err := remote.Get(ref, remote.WithContext(t.Context()))
	require.NoError(t, err, tagged)
	assert.Equal(t, want, d.Digest.String(), tagged)
	assert.Equal(t, want, digest.FromBytes(d.Manifest).String())
	if d.MediaType.IsIndex() {
		list, err := d.ImageIndex()
		require.NoError(t, err)
		index, err := list.IndexManifest()
		require.NoError(t, err)
		assert.Len(t, index.Manifests, 2, "all platforms")
		return
	}
	image, err := d.Image()
	require.NoError(t, err)
	layers, err := image.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		body, err := layer.Compressed()
		require.NoError(t, err, tagged)
		_, err = io.Copy(io.Discard, body) // the library compares it with its digest
		require.NoError(t, err, tagged)
		require.NoError(t, body.Close())
	}
}

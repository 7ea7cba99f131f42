// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// haproxyTags are those of the registry that previews ask: a proxy's, and others of SUSE's scheme.
var haproxyTags = []string{
	"3.0.5-alpine", "3.0.8-alpine", "3.0.5", "3.0.9", "3.2.1-alpine", "3.3-dev1-alpine", "latest",
}

// haproxyRegistry is the host of a registry with haproxy.
func haproxyRegistry(t *testing.T, tags ...string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	for _, tag := range tags {
		release, _, _ := strings.Cut(tag, "-rev") // the short tag of SUSE's scheme names the image of the long one
		layer := static.NewLayer([]byte(release), types.DockerLayer)
		image, err := mutate.AppendLayers(empty.Image, layer)
		require.NoError(t, err)
		image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}})
		require.NoError(t, err)
		ref, err := name.NewTag(host + "/haproxy:" + tag)
		require.NoError(t, err)
		require.NoError(t, remote.Write(ref, image))
	}
	return host
}

// podWith is the pod manifest of containers with these images.
func podWith(images ...string) string {
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n"
	for n, image := range images {
		text += "  - name: c" + string(rune('0'+n)) + "\n    image: " + image + " # ours\n"
	}
	return text
}

// runPreview runs preview for a pod with containers of these images; HOST in them is a registry with a proxy's tags.
func runPreview(t *testing.T, images []string, args ...string) (out, errs, file string, code int) {
	t.Helper()
	host := haproxyRegistry(t, haproxyTags...)
	file = filepath.Join(t.TempDir(), "web.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(podWith(images...), "HOST", host)), 0o600))
	root := t.TempDir() // a machine without anything of ours
	code, out, errs = ends(t, append([]string{"preview", "--root", root, file}, args...)...)
	clean := strings.NewReplacer(host, "HOST", file, "web.yaml")
	return clean.Replace(out), clean.Replace(errs), file, code
}

func TestPreview(t *testing.T) {
	t.Parallel()
	out, errs, file, code := runPreview(t, []string{"HOST/haproxy:3.0.5-alpine"}, "--updates", "patch")
	assert.Zero(t, code, errs)
	for _, want := range []string{
		"web.yaml\n  c0            HOST/haproxy  3.0.5-alpine  3.0.8-alpine (patch)  3.2.1-alpine (updates: minor)\n",
		"-    image: HOST/haproxy:3.0.5-alpine # ours", "+    image: HOST/haproxy:3.0.8-alpine # ours",
	} {
		assert.Contains(t, out, want)
	}
	assert.NotContains(t, out, "dev1")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(data), "3.0.5-alpine", "preview changes nothing")
}

// By default nothing larger than a revision is offered, which says what would be.
func TestPreviewWithoutSettings(t *testing.T) {
	t.Parallel()
	out, errs, _, code := runPreview(t, []string{"HOST/haproxy:3.0.5-alpine", "HOST/haproxy:latest"}, "--output", "json")
	assert.Zero(t, code, errs)
	var got previewed
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.Images, 2)
	assert.Empty(t, got.Images[0].Offered)
	assert.NotEmpty(t, got.Images[0].Digest)
	assert.Equal(t, "updates: patch", got.Images[0].NotAllowed[len(got.Images[0].NotAllowed)-1].Key)
	require.NotNil(t, got.Images[1].RebuildsOnly, "latest has no order")
	assert.Empty(t, got.Diffs)
}

func TestPreviewOfWhatCannotBeAsked(t *testing.T) {
	t.Parallel()
	out, errs, _, code := runPreview(t, []string{"HOST/none:1.0", "127.0.0.1:1/a:1.0", "HOST/none:1.0", "HOST/haproxy:3.0.5-alpine"}, "--updates", "major")
	assert.Equal(t, 1, code)
	assert.Regexp(t, `c3 +HOST/haproxy +3.0.5-alpine +- +3.2.1-alpine \(held\)\n`, out, "one bad image does not hide the others")
	assert.Contains(t, out, "Held:\n  HOST/haproxy:3.0.5-alpine: the agent does not change the pod while HOST/none is unknown\n")
	assert.Contains(t, out, "Unknown:\n  HOST/none:1.0: ", "once for both containers")
	assert.Regexp(t, `c0 +HOST/none +1.0 +unknown +unknown\n`, out)
	assert.Equal(t, "image-update-agent: error: no release found for 2 of 3 images: "+
		"check the image names, the network and the registry logins\n", errs, "once, and why is on the page")
	_, errs, _, code = runPreview(t, nil, "--updates", "all")
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, `"all"`)
}

func TestPreviewWithoutAnImage(t *testing.T) {
	t.Parallel()
	code, o, e := ends(t, "preview", "--root", t.TempDir(), "/none.yaml")
	assert.Equal(t, 1, code)
	assert.Empty(t, o)
	assert.Contains(t, e, "/none.yaml: no such file or directory")
}

// previewWith previews files, by their names, with a configuration of the agent; HOST in them is a registry.
func previewWith(t *testing.T, tags []string, config string, files map[string]string, args ...string) (got previewed, errs string) {
	t.Helper()
	root, dir, host := t.TempDir(), t.TempDir(), haproxyRegistry(t, tags...)
	put(t, root, map[string]string{ourConfig: strings.ReplaceAll(config, "HOST", host)})
	for name, text := range files {
		put(t, dir, map[string]string{name: strings.ReplaceAll(text, "HOST", host)})
	}
	_, o, e := ends(t, append([]string{"preview", "--root", root, "--output", "json", dir}, args...)...)
	require.NoError(t, json.Unmarshal([]byte(strings.NewReplacer(host, "HOST", dir+"/", "").Replace(o)), &got), "%s%s", o, e)
	return got, e
}

// Two containers of one repository have tags of their own.
func TestPreviewOfTwoTagsOfOneRepository(t *testing.T) {
	t.Parallel()
	got, errs := previewWith(t, haproxyTags, "repositories: [{match: HOST/haproxy, updates: patch}]\n",
		map[string]string{"web.yaml": podWith("HOST/haproxy:3.0.5-alpine", "HOST/haproxy:3.0.5")})
	assert.Empty(t, errs)
	require.Len(t, got.Diffs, 1)
	assert.Contains(t, got.Diffs[0].Diff, "+    image: HOST/haproxy:3.0.8-alpine # ours\n")
	assert.Contains(t, got.Diffs[0].Diff, "+    image: HOST/haproxy:3.0.9 # ours\n")
}

// What the configuration writes into pod manifests is shown: rewrites, the tag to follow, the pull policy.
func TestPreviewFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ config, image, offered, change, diff string }{
		"rewrites": {
			"rewrites: [{from: example.com/proxy, to: HOST/haproxy}]\nrepositories: [{match: HOST/haproxy, updates: patch}]\n",
			"example.com/proxy:3.0.5-alpine", "3.0.8-alpine", "patch", "+    image: HOST/haproxy:3.0.8-alpine # ours\n",
		},
		"a rewrite alone": {
			"rewrites: [{from: example.com/proxy, to: HOST/haproxy}]\n",
			"example.com/proxy:3.0.5-alpine", "3.0.5-alpine", "convert", "+    image: HOST/haproxy:3.0.5-alpine # ours\n",
		},
		"follow": {
			"repositories: [{match: HOST/haproxy, follow: 3.2.1-alpine}]\n",
			"HOST/haproxy:3.0.5-alpine", "3.2.1-alpine", "minor", "+    image: HOST/haproxy:3.2.1-alpine # ours\n",
		},
		"the short tag of SUSE's scheme": {
			"", "HOST/haproxy:4.0.0", "4.0.0-rev2", "convert", "+    image: HOST/haproxy:4.0.0-rev2 # ours\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tags := append([]string{"4.0.0", "4.0.0-rev2", "4.0.0-rev2-build1.1"}, haproxyTags...)
			got, errs := previewWith(t, tags, c.config, map[string]string{"web.yaml": podWith(c.image)})
			assert.Empty(t, errs)
			require.Len(t, got.Images, 1)
			assert.Equal(t, c.offered, got.Images[0].Offered)
			assert.Equal(t, c.change, got.Images[0].Change)
			require.Len(t, got.Diffs, 1)
			assert.Contains(t, got.Diffs[0].Diff, c.diff)
		})
	}
}

// The agent writes none of the files that define one pod, and none of those that RKE2 writes.
func TestPreviewOfFilesThatAreNotWritten(t *testing.T) {
	t.Parallel()
	pod := podWith("HOST/haproxy:3.0.5-alpine")
	got, _ := previewWith(t, haproxyTags, "repositories: [{match: HOST/haproxy, updates: patch}]\n", map[string]string{"a.yaml": pod, "b.yaml": pod})
	require.Len(t, got.Images, 2)
	assert.Empty(t, got.Diffs)
	assert.Equal(t, "a.yaml and b.yaml define the same pod default/web: "+
		"kubelet runs the one that it read last; the agent changes neither of them", got.Images[0].Held)

	got, _ = previewWith(t, haproxyTags, "platform: rke2\nrepositories: [{match: HOST/haproxy, updates: patch}]\n", map[string]string{"etcd.yaml": pod})
	require.Len(t, got.Images, 1)
	assert.Empty(t, got.Diffs)
	assert.Equal(t, "rke2 writes etcd.yaml itself at each start; to get newer images, update rke2", got.Images[0].Held)
	assert.Equal(t, "3.0.8-alpine", got.Images[0].Offered, "it is shown all the same")
}

// The pods of RKE2 have kubeadm's labels, and no kubeadm upgrades them: on any machine they are told by their images.
func TestPreviewOfRKE2sPods(t *testing.T) {
	t.Parallel()
	const rke2 = "rancher/hardened-kubernetes:v1.33.5-rke2r1-build20250910"
	pod := strings.Replace(podWith("HOST/"+rke2), "{name: web}", "{name: kube-apiserver, labels: {component: kube-apiserver, tier: control-plane}}", 1)
	pod = strings.Replace(pod, "name: c0", "name: kube-apiserver", 1)
	files := map[string]string{"any.yaml": pod}
	host := haproxyRegistry(t, "1.0")
	put := func(tag string) {
		ref, err := name.NewTag(host + "/rancher/hardened-kubernetes:" + tag)
		require.NoError(t, err)
		image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Author: tag, RootFS: v1.RootFS{Type: "layers"}})
		require.NoError(t, err)
		require.NoError(t, remote.Write(ref, image))
	}
	put("v1.33.5-rke2r1-build20250910")
	put("v1.34.1-rke2r1-build20251001")
	files["any.yaml"] = strings.ReplaceAll(pod, "HOST", host)
	got, _ := previewWith(t, haproxyTags, "repositories: [{match: '"+host+"/*', updates: major}]\n", files)
	require.Len(t, got.Images, 1)
	assert.Empty(t, got.Images[0].NotAllowed, "kubeadm upgrade is not advised")
	assert.Equal(t, "rke2 writes any.yaml itself at each start; to get newer images, update rke2", got.Images[0].Held)
	assert.Empty(t, got.Diffs)
}

// Most images have no tags of SUSE's scheme, and a person can do nothing about that.
func TestPreviewNotesOnlyWhatAPersonCanChange(t *testing.T) {
	t.Parallel()
	got, _ := previewWith(t, haproxyTags, "", map[string]string{"web.yaml": podWith("HOST/haproxy:3.2.1-alpine", "HOST/haproxy:latest")})
	require.Len(t, got.Images, 2)
	assert.Empty(t, got.Images[0].Notes)
	assert.Empty(t, got.Images[1].Notes)
}

// kubelet reads the files of its directory behind symlinks, and no directory.
func TestPreviewOfADirectory(t *testing.T) {
	t.Parallel()
	root, dir := t.TempDir(), t.TempDir()
	run := func() (out, errs string, code int) {
		code, o, e := ends(t, "preview", "--root", root, dir)
		return strings.ReplaceAll(o, dir+"/", ""), strings.ReplaceAll(e, dir+"/", ""), code
	}
	out, errs, code := run()
	assert.Equal(t, "There is no image in these files.\n", out)
	assert.Empty(t, errs)
	assert.Zero(t, code)

	elsewhere := filepath.Join(t.TempDir(), "pod")
	require.NoError(t, os.WriteFile(elsewhere, []byte(podWith(`"[::1]:1/app@sha256:`+strings.Repeat("a", 64)+`"`, `""`)), 0o600))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "link.yaml")))
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(dir, "directory.yaml")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".hidden.yaml"), []byte("no pod"), 0o600))
	out, errs, code = run()
	assert.Empty(t, errs)
	assert.Zero(t, code)
	for _, want := range []string{
		"link.yaml\n  c0            [::1]:1/app  aaaaaaaaaaaa  -          -\n  c1            -            -             -          -\n",
		"Left as it is:\n  [::1]:1/app@sha256:" + strings.Repeat("a", 64) + ": it names a digest, so kubelet starts exactly this image; remove the digest to follow the tag\n  c1: no image is written\n",
	} {
		assert.Contains(t, out, want)
	}

	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "lost.yaml")))
	_, errs, code = run()
	assert.Contains(t, errs, "lost.yaml: no such file or directory")
	assert.Equal(t, exitFailed, code)
}

// preview needs no containerd: it follows hosts.toml where only the running containerd knows whether it does.
func TestPreviewFollowsHostsTomlWithoutContainerd(t *testing.T) {
	t.Parallel()
	const table = "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\n"
	for name, config := range map[string]string{
		"no config_path":  "",
		"two directories": table + "config_path = '/etc/containerd/certs.d:/etc/docker/certs.d'\n",
		"one directory":   table + "config_path = '/etc/containerd/certs.d'\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, host := t.TempDir(), haproxyRegistry(t, haproxyTags...)
			put(t, root, map[string]string{
				"etc/containerd/config.toml":                    config,
				"etc/containerd/certs.d/example.com/hosts.toml": "server = \"http://" + host + "\"\n",
				"web.yaml": podWith("example.com/haproxy:3.0.5-alpine"),
			})
			file := filepath.Join(root, "web.yaml")
			code, o, e := ends(t, "preview", "--root", root, "--updates", "patch", file)
			assert.Zero(t, code, "%s%s", o, e)
			assert.Contains(t, o, "3.0.8-alpine")
		})
	}
}

// containerd asks the registry itself if it cannot parse hosts.toml, and preview says so.
func TestPreviewSaysThatHostsTomlIsNotParsed(t *testing.T) {
	t.Parallel()
	root, host := t.TempDir(), haproxyRegistry(t, haproxyTags...)
	hostsToml := "etc/containerd/certs.d/" + host + "/hosts.toml"
	file := filepath.Join(root, "web.yaml")
	put(t, root, map[string]string{
		"etc/containerd/config.toml": "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\n" +
			"config_path = '/etc/containerd/certs.d'\n",
		hostsToml:  "s3cr3t = 1\ns3cr3t = 2\n", // a password as a key
		"web.yaml": podWith(host + "/haproxy:3.0.5-alpine"),
	})
	code, o, e := ends(t, "preview", "--root", root, "--updates", "patch", "--output", "json", file)
	assert.Zero(t, code, "%s%s", o, e)
	assert.Contains(t, o, filepath.Join(root, hostsToml)+": not TOML as containerd reads it: line 2, column 1: ")
	assert.NotContains(t, o+e, "s3cr3t")
	assert.Contains(t, o, ": containerd ignores the file and asks "+host+" itself")
}

// preview still says so if it cannot read which directories containerd follows.
func TestPreviewWithAnUnreadableConfigurationOfContainerd(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, map[string]string{
		"etc/containerd/config.toml":                    "version = \n",
		"etc/containerd/certs.d/example.com/hosts.toml": "server = \"http://127.0.0.1:1\"\n",
		"web.yaml": podWith("example.com/haproxy:3.0.5-alpine"),
	})
	code, o, _ := ends(t, "preview", "--root", root, filepath.Join(root, "web.yaml"))
	assert.Equal(t, 1, code)
	assert.Contains(t, o, "cannot read the configuration of containerd")
}

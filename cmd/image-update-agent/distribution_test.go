// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

// onRKE2 are the settings of a node of RKE2 with these files, below its root.
func onRKE2(t *testing.T, files map[string]string) settings {
	t.Helper()
	root := t.TempDir()
	put := func(path, text string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	put("usr/local/bin/rke2", "")
	put("var/lib/rancher/rke2/server/token", "")
	for path, text := range files {
		put(path, text)
	}
	s, err := (&app{root: root}).settings()
	require.NoError(t, err)
	require.Equal(t, "rke2", s.platform.Name)
	return s
}

const (
	rke2Config = "etc/rancher/rke2/config.yaml"
	ourConfig  = "etc/image-update-agent/config.yaml"
)

// Where RKE2 keeps its files cannot be read, so kubelet may read another directory than the agent writes.
func TestAConfigurationOfRKE2ThatCannotBeReadHolds(t *testing.T) {
	starts := bustest.Start(t, "")
	bustest.Booting{Load: "loaded", Unit: "rke2_2dserver_2eservice", Command: []string{"/usr/local/bin/rke2", "server"}}.Serve(t, starts)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", starts.Address)
	s := onRKE2(t, map[string]string{rke2Config: "data-dir: [\n"})
	holds := s.preconditions().Holds(t.Context())
	require.Len(t, holds, 1)
	assert.Equal(t, status.HoldKubelet, holds[0].Name)
	assert.Contains(t, holds[0].Reason, s.root+"/"+rke2Config+": line 1: did not find expected node content")
	require.ErrorIs(t, (&app{root: s.root}).renderAtBoot(t.Context()), release.ErrHeld)

	require.NoError(t, os.WriteFile(filepath.Join(s.root, rke2Config), []byte("data-dir: /srv\n"), 0o644))
	assert.Empty(t, s.preconditions().Holds(t.Context()), "the file was mended")
	require.NoError(t, os.Chmod(filepath.Join(s.root, rke2Config), 0o666))
	assert.Len(t, s.preconditions().Holds(t.Context()), 1, "everybody may write it")

	s = onRKE2(t, map[string]string{rke2Config: "data-dir: [\n", ourConfig: "podManifests: /srv/pods\n"})
	assert.Empty(t, s.preconditions().Holds(t.Context()), "a file of ours names the directory")
	s = onRKE2(t, map[string]string{rke2Config: "data-dir: /srv\n"})
	assert.Empty(t, s.preconditions().Holds(t.Context()))
}

// What the page for k3s and RKE2 asks for is an answer: the lines go to standard output. Only --write is refused.
func TestTheLinesForRegistriesYAMLAreAnAnswer(t *testing.T) {
	t.Parallel()
	const etc = "var/lib/rancher/rke2/agent/etc/containerd/"
	s := onRKE2(t, map[string]string{etc + "config.toml": "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/" + etc + "certs.d'\n"})
	require.NoError(t, os.MkdirAll(filepath.Join(s.root, etc, "certs.d"), 0o755))
	run := func(args ...string) (out, errs string, code int) {
		var o, e bytes.Buffer
		args = append([]string{"local-registry", "enable", "registry.suse.com", "--root", s.root}, args...)
		code = execute(t.Context(), args, streams{in: strings.NewReader(""), out: &o, err: &e})
		return o.String(), e.String(), code
	}
	out, errs, code := run()
	assert.Equal(t, exitDone, code)
	assert.Equal(t, "mirrors:\n  registry.suse.com:\n    endpoint:\n    - \"https://registry.suse.com\"\n    - \"http://127.0.0.1:334\"\n", out)
	assert.NotContains(t, errs, "error:")
	assert.Contains(t, errs, "/etc/rancher/rke2/registries.yaml has for registry.suse.com, restart rke2, and enable again with --write")
	out, errs, code = run("--write")
	assert.Equal(t, exitHeld, code)
	assert.Empty(t, out)
	assert.Contains(t, errs, "error: ")
}

// An admin may name the directory of RKE2 in other words than RKE2, or because the agent cannot read its configuration.
func TestPodsOfRKE2AreItsOwnWhereverTheDirectoryIsNamed(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"as it is":             {},
		"with a slash":         {ourConfig: "podManifests: /var/lib/rancher/rke2/agent/pod-manifests/\n"},
		"through a link":       {ourConfig: "podManifests: /var/lib/rke2-pods\n"},
		"data-dir is not read": {ourConfig: "podManifests: /srv/rke2/agent/pod-manifests\n", rke2Config: "data-dir: [\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, "rke2", onRKE2(t, files).owned()["etcd.yaml"])
		})
	}
}

// RKE2 and k3s write the logins of registries.yaml into containerd's configuration, and its TLS settings into hosts.toml.
func TestTheLoginsOfRegistriesYAMLAreUsed(t *testing.T) {
	t.Parallel()
	private := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "u" || password != "p" {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		private.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "https://")
	ref, err := name.NewTag(host + "/app:1.0")
	require.NoError(t, err)
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}})
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, image, remote.WithTransport(server.Client().Transport),
		remote.WithAuth(&authn.Basic{Username: "u", Password: "p"})))

	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: '" + host + "/app:1.0'}]}\n"
	for login, want := range map[string]int{
		"[plugins.'io.containerd.cri.v1.images'.registry.configs.'" + host + "'.auth]\nusername = 'u'\npassword = 'p'\n": exitDone,
		"": exitFailed,
	} {
		const etc = "var/lib/rancher/rke2/agent/etc/containerd/"
		s := onRKE2(t, map[string]string{
			etc + "config.toml":                     "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/" + etc + "certs.d'\n" + login,
			etc + "certs.d/" + host + "/hosts.toml": "server = '" + server.URL + "'\n[host.'" + server.URL + "']\nskip_verify = true\n",
		})
		var out, errs bytes.Buffer
		code := execute(t.Context(), []string{"preview", "--root", s.root, "-"}, streams{in: strings.NewReader(pod), out: &out, err: &errs})
		assert.Equal(t, want, code, "%s%s", &out, &errs)
	}
}

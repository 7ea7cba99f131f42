// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/registry/layout"
)

// Both packages are asked, below the root, on the bus that D-Bus's own variable
// names, or else on the root's.
func TestPreconditionsOfTheNode(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "")
	s := settings{root: t.TempDir(), platform: platform.Detect("")}
	assert.Empty(t, s.preconditions().Holds(t.Context()), "nothing there")
	put(t, s.root, map[string]string{"run/reboot-required": ""})
	reboots := status.Hold{Name: "reboot", Reason: "/run/reboot-required requests a reboot"}
	stopped := status.Hold{Name: "kubelet", Reason: "kubelet.service is not active: inactive"}
	assert.Equal(t, []status.Hold{reboots}, s.preconditions().Holds(t.Context()))

	serveStopped(t, bustest.Start(t, filepath.Join(s.root, "run/dbus/system_bus_socket")))
	assert.Equal(t, []status.Hold{reboots, stopped}, s.preconditions().Holds(t.Context()))

	other := bustest.Start(t, "")
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", other.Address)
	assert.Equal(t, []status.Hold{reboots}, s.preconditions().Holds(t.Context()), "the other bus is empty")
	serveStopped(t, other)
	assert.Equal(t, []status.Hold{reboots, stopped}, s.preconditions().Holds(t.Context()))
	assert.Equal(t, "unix:path=/run/dbus/system_bus_socket", func() string {
		t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "")
		return systemBus("/")
	}())
}

// serveStopped is a service manager whose kubelet.service is not active.
func serveStopped(t *testing.T, b bustest.Bus) {
	t.Helper()
	b.Serve(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1/unit/kubelet_2eservice",
		"org.freedesktop.DBus.Properties", map[string]any{"Get": func(_, name string) (dbus.Variant, *dbus.Error) {
			if name == "ActiveEnterTimestampMonotonic" {
				return dbus.MakeVariant(uint64(0)), nil
			}
			return dbus.MakeVariant(map[string]string{"LoadState": "loaded", "ActiveState": "inactive"}[name]), nil
		}})
}

// What Velum was asked for is taken back by the next cycle, whatever of the two
// settings was turned off.
func TestVelumIsAskedAndNoMore(t *testing.T) {
	t.Parallel()
	waiting := status.Announcement{State: "staged", Updates: []status.AnnouncedUpdate{{
		Image: "registry.suse.com/caasp/v4/velum", Change: "rebuild", To: "4.0.0-rev1", Digest: digest.FromString("v"),
	}}}
	path := filepath.Join(t.TempDir(), "grains")
	announce := func(g config.Grains) string {
		g.Path = path
		s := settings{Settings: config.Settings{Grains: g}}
		require.NoError(t, announcer(s, slog.New(slog.DiscardHandler)).Announce(t.Context(), waiting))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(data)
	}
	for name, off := range map[string]config.Grains{"velum: off": {Enabled: true}, "enabled: false": {}} {
		require.NoError(t, os.WriteFile(path, []byte("roles: [admin]\n"), 0o600))
		require.NotContains(t, announce(config.Grains{Enabled: true}), "reboot", "it was not requested")
		require.Contains(t, announce(config.Grains{Enabled: true, Velum: true}), "\ntx_update_reboot_needed: true ")
		require.NotContains(t, announce(off), "reboot", name)
	}
	require.NoError(t, os.WriteFile(path, []byte("tx_update_reboot_needed: true\n"), 0o600))
	require.Equal(t, "tx_update_reboot_needed: true\n", announce(config.Grains{}), "transactional-update's")
	require.NoError(t, os.WriteFile(path, []byte("a: [\n"), 0o600))
	require.Equal(t, "a: [\n", announce(config.Grains{}), "turned off, so its trouble is not ours")
}

// Under --root, the units of salt-minion are those of the root, not the machine's.
func TestGrainIsForTheMinionBelowTheRoot(t *testing.T) {
	t.Parallel()
	s := settings{root: t.TempDir()}
	s.Grains = config.Grains{Enabled: true, Path: filepath.Join(s.root, "etc/salt/grains")}
	unit := filepath.Join(s.root, "usr/lib/systemd/system/salt-minion.service")
	for _, dir := range []string{filepath.Dir(unit), filepath.Dir(s.Grains.Path)} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	require.NoError(t, os.WriteFile(unit, nil, 0o644))
	announce := func() {
		t.Helper()
		a := announcer(s, slog.New(slog.DiscardHandler))
		require.NoError(t, a.Announce(t.Context(), status.Announcement{State: "current"}))
	}
	announce()
	require.NoFileExists(t, s.Grains.Path, "salt-minion is disabled there")
	require.NoError(t, os.Remove(unit))
	announce()
	require.FileExists(t, s.Grains.Path)
}

// What is on a stick is staged and offered, and applied only when the registry that
// kubelet asks has answered.
func TestNothingIsAppliedByItselfFromALayout(t *testing.T) {
	t.Parallel()
	const index = `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",` +
		`"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,` +
		`"annotations":{"org.opencontainers.image.ref.name":"registry.suse.com/caasp/v4/velum:4.0.0"}}]}`
	dir := t.TempDir()
	put(t, dir, map[string]string{
		ourConfig:          "apply:\n  mode: auto\n",
		"stick/oci-layout": `{"imageLayoutVersion":"1.0.0"}`,
		"stick/index.json": index,
	})
	a := &app{root: dir}
	s, err := a.settings()
	require.NoError(t, err)
	stick, err := layout.Open(filepath.Join(dir, "stick"), layout.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for from, auto := range map[*layout.Layout]bool{nil: true, stick: false} {
		w, err := a.wire(t.Context(), s, slog.New(slog.DiscardHandler), from)
		require.NoError(t, err)
		assert.Equal(t, auto, w.agent.Policy.Auto)
		w.close()
	}
}

// apply.lock.id chooses how the id is made; what the node may have under the other one of its own is given back, too.
func TestLockID(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, map[string]string{"etc/machine-id": "1c09ca98649c4c7abc779cd04c96812e\n"})
	s := settings{root: root}
	s.Apply.Lock.URL = "https://lock.example.com"
	own, former := s.lockID()
	assert.Len(t, own, 32)
	assert.Empty(t, former, "Zincati's id may be Zincati's")
	assert.Equal(t, own, s.lock().ID)
	s.Apply.Lock.ID = config.LockIDZincati
	id, former := s.lockID()
	assert.Equal(t, "978a225b3d7b40e9acd7ce9b62f68444", id)
	assert.Equal(t, own, former)
	assert.Equal(t, id, s.lock().ID)
}

// onRKE2 are the settings of a node of RKE2 with these files, below its root.
func onRKE2(t *testing.T, files map[string]string) settings {
	t.Helper()
	root := t.TempDir()
	put(t, root, map[string]string{"usr/local/bin/rke2": "", "var/lib/rancher/rke2/server/token": ""})
	put(t, root, files)
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
	enable := []string{"local-registry", "enable", "registry.suse.com", "--root", s.root}
	code, out, errs := ends(t, enable...)
	assert.Equal(t, exitDone, code)
	assert.Equal(t, "mirrors:\n  registry.suse.com:\n    endpoint:\n    - \"https://registry.suse.com\"\n    - \"http://127.0.0.1:334\"\n", out)
	assert.NotContains(t, errs, "error:")
	assert.Contains(t, errs, "/etc/rancher/rke2/registries.yaml has for registry.suse.com, restart rke2, and enable again with --write")
	code, out, errs = ends(t, append(enable, "--write")...)
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

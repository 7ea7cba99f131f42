// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
)

const bootTemplate = `apiVersion: v1
kind: Pod
metadata: {name: velum}
spec:
  containers:
  - name: velum
    image: registry.suse.com/caasp/v4/velum:4.0.1-rev1
`

var dbTemplate = strings.Replace(bootTemplate, "{name: velum}", "{name: db}", 1)

func bootRoot(t *testing.T, kubeletLeft uint64) string {
	t.Helper()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "")
	root := t.TempDir()
	put(t, root, map[string]string{
		"usr/share/caasp-container-manifests/manifests/velum.yaml": bootTemplate,
		"etc/kubernetes/manifests/db.yaml":                         dbTemplate,
		"usr/share/caasp-container-manifests/manifests/db.yaml":    dbTemplate + "  hostNetwork: true\n",
	})
	require.NoError(t, os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755))
	bustest.Booting{System: "starting", Load: "loaded", Left: kubeletLeft}.
		Serve(t, bustest.Start(t, filepath.Join(root, "run/dbus/system_bus_socket")))
	return root
}

func TestRenderBeforeKubeletStarts(t *testing.T) {
	root := bootRoot(t, 0)
	assert.Equal(t, "db.yaml unchanged: it was changed since the agent wrote it\n"+
		"velum.yaml written: its template is new\n", does(t, "render", "--root", root))
	data, err := os.ReadFile(filepath.Join(root, "etc/kubernetes/manifests/velum.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(data), "imagePullPolicy: Always")
	assert.Equal(t, "db.yaml unchanged: it was changed since the agent wrote it\n", does(t, "render", "--root", root))
	require.NoError(t, os.Remove(filepath.Join(root, "etc/kubernetes/manifests/velum.yaml")))
	var steps []statuspage.BootStep
	a := newApp(streams{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}})
	require.NoError(t, json.Unmarshal([]byte(does(t, "render", "--root", root, "--output", "json")), &steps))
	assert.Equal(t, []statuspage.BootStep{
		{PodManifest: "db.yaml", Result: "unchanged", Reason: "it was changed since the agent wrote it"},
		{PodManifest: "velum.yaml", Result: "written", Reason: steps[1].Reason},
	}, steps)
	cmd := a.command()
	cmd.SetArgs([]string{"render", "--root", root})
	require.Zero(t, a.execute(t.Context(), cmd))
	assert.True(t, a.acts.Load(), "an interrupt waits for it")
}

// The boot may be a part of the update that owns the node, and no part of its removal.
func TestRenderWhileSaltOwnsTheNode(t *testing.T) {
	root := bootRoot(t, 0)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/salt"), 0o755))
	for text, want := range map[string]string{
		"update_in_progress: true\n":                            "velum.yaml written",
		"migration_in_progress: true\n":                         "velum.yaml written",
		"removal_in_progress: true\n":                           "velum.yaml unchanged: the grain removal_in_progress is true",
		"update_in_progress: true\nremoval_in_progress: true\n": "velum.yaml unchanged: the grain removal_in_progress is true",
		"update_in_progress: true\nbroken: [\n":                 "velum.yaml unchanged: grains",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "etc/salt/grains"), []byte(text), 0o600))
		assert.Contains(t, does(t, "render", "--root", root), want, text)
		require.NoError(t, os.RemoveAll(filepath.Join(root, "etc/kubernetes/manifests/velum.yaml")))
	}
}

// What runs, or may run, is the daemon's.
func TestRenderAfterKubeletsStart(t *testing.T) {
	root := bootRoot(t, 1)
	out, errs := holds(t, "render", "--root", root)
	assert.Empty(t, out)
	assert.Contains(t, errs, "held: kubelet may have been started: kubelet.service: has been started since the boot")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "run/dbus")))
	_, errs = holds(t, "render", "--root", root)
	assert.Contains(t, errs, "held: cannot tell which directory kubelet reads: flags of kubelet.service are not known: there is no system bus; set podManifests")
	assert.NoFileExists(t, filepath.Join(root, "etc/kubernetes/manifests/velum.yaml"))
}

// In an image that is built, or with another init, there is no systemd to ask, and nothing runs.
func TestRenderWithoutSystemd(t *testing.T) {
	root := bootRoot(t, 1)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "run")))
	_, errs := holds(t, "render", "--root", root)
	assert.Contains(t, errs, "held: cannot tell which directory kubelet reads: ")
	put(t, root, map[string]string{ourConfig: "podManifests: /etc/kubernetes/manifests\n"})
	assert.Contains(t, does(t, "render", "--root", root), "velum.yaml written: its template is new\n")
	assert.FileExists(t, filepath.Join(root, "etc/kubernetes/manifests/velum.yaml"))
	socket := filepath.Join(root, "run/containerd/containerd.sock")
	require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	_, errs = holds(t, "render", "--root", root)
	assert.Contains(t, errs, "held: kubelet may have been started: cri "+socket, "a runtime that does not say what runs")
	require.NoError(t, l.Close())
	<-done
}

// holds runs a verb that ends with 4.
func holds(t *testing.T, args ...string) (out, errs string) {
	t.Helper()
	code, o, e := ends(t, args...)
	require.Equal(t, exitHeld, code, e)
	return o, e
}

// asideFrom is what the directory of pod manifests of a node below root holds,
// two files of which are set aside, and one that was written anew.
func asideFrom(t *testing.T, dir string) {
	t.Helper()
	put(t, dir, map[string]string{
		".b.yaml.image-update-agent-aside": "b", ".a.yaml.image-update-agent-aside": "a",
		".c.yaml.image-update-agent-aside": "old", "c.yaml": "new", ".d.yaml.swp": "an editor's",
	})
}

// isBack: the files of asideFrom have come back.
func isBack(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	found := map[string]string{}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		require.NoError(t, err)
		found[entry.Name()] = string(data)
	}
	assert.Equal(t, map[string]string{"a.yaml": "a", "b.yaml": "b", "c.yaml": "new", ".d.yaml.swp": "an editor's"}, found)
}

func TestPutBackPrintsWhatCameBack(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, map[string]string{"etc/image-update-agent/config.yaml": "podManifests: /etc/kubernetes/manifests\n"})
	dir := filepath.Join(root, "etc/kubernetes/manifests")
	assert.Empty(t, does(t, "put-back", "--root", root), "no directory: nothing was aside")
	asideFrom(t, dir)
	assert.Equal(t, "a.yaml\nb.yaml\n", does(t, "put-back", "--root", root))
	isBack(t, dir)
	assert.Empty(t, does(t, "put-back", "--root", root))
	assert.JSONEq(t, `{"putBack": []}`, does(t, "put-back", "--root", root, "--output", "json"))
	isBack(t, dir)
}

func TestPutBackGoesWhereTheConfigurationSays(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("podManifests: /pods\n"), 0o600))
	asideFrom(t, filepath.Join(root, "pods"))
	assert.Equal(t, "a.yaml\nb.yaml\n", does(t, "put-back", "--root", root, "--config", file))
	isBack(t, filepath.Join(root, "pods"))
}

// Without an answer of systemd, kubelet may read any directory: nothing restored is then no good news.
func TestPutBackSaysThatItMayLookInTheWrongPlace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	asideFrom(t, filepath.Join(root, "etc/kubernetes/manifests"))
	for _, restored := range []string{"a.yaml\nb.yaml\n", ""} {
		code, out, errs := ends(t, "put-back", "--root", root)
		assert.Equal(t, exitFailed, code)
		assert.Equal(t, restored, out)
		assert.Contains(t, errs, "/etc/kubernetes/manifests: cannot tell which directory kubelet reads")
		assert.Contains(t, errs, "set podManifests")
	}
}

// A daemon that does not start any more, for a misspelt key, leaves no pod away.
func TestPutBackDespiteABrokenConfiguration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, kubelet, file string }{
		{"/etc/kubernetes/manifests", "", "etc/image-update-agent/config.yaml"},
		{"/pods", "staticPodPath: /pods\n", "etc/image-update-agent/config.yaml"},
		{"/pods", "staticPodPath: /pods\n", "usr/share/image-update-agent/config.yaml"}, // of the package
	} {
		t.Run(c.name+" of "+c.file, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			put(t, root, map[string]string{c.file: "podManifest: /elsewhere\n", "var/lib/kubelet/config.yaml": c.kubelet})
			dir := filepath.Join(root, c.name)
			asideFrom(t, dir)
			code, out, errs := ends(t, "put-back", "--root", root)
			assert.Equal(t, exitUsage, code)
			assert.Contains(t, errs, "podManifest")
			assert.Equal(t, "a.yaml\nb.yaml\n", out)
			isBack(t, dir)
		})
	}
}

func TestPutBackSaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "etc/kubernetes/manifests")
	asideFrom(t, dir)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "a.yaml"), 0o755))
	code, out, errs := ends(t, "put-back", "--root", root)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "a.yaml: in its place: unsafe: directory")
	assert.Equal(t, "b.yaml\n", out, "the others came back")
}

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
	for path, text := range map[string]string{
		"usr/share/caasp-container-manifests/manifests/velum.yaml": bootTemplate,
		"etc/kubernetes/manifests/db.yaml":                         dbTemplate,
		"usr/share/caasp-container-manifests/manifests/db.yaml":    dbTemplate + "  hostNetwork: true\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}
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
	config := filepath.Join(root, "etc/image-update-agent/config.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(config), 0o755))
	require.NoError(t, os.WriteFile(config, []byte("podManifests: /etc/kubernetes/manifests\n"), 0o600))
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
	var o, e bytes.Buffer
	code := execute(t.Context(), args, streams{in: strings.NewReader(""), out: &o, err: &e})
	require.Equal(t, exitHeld, code, e.String())
	return o.String(), e.String()
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// diagnosis is what doctor says of one thing.
type diagnosis struct{ Check, Verdict, Detail, Remedy string }

// diagnose gives what doctor says by check; of several, the first that is not good.
func diagnose(t *testing.T, n *node.Node, code int) map[string]diagnosis {
	t.Helper()
	r := n.Agent("doctor", "--output", "json")
	require.Equal(t, code, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	var all []diagnosis
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &all), r.Stdout)
	checks := map[string]diagnosis{}
	for _, d := range all {
		assert.Equal(t, d.Verdict == "ok" || d.Verdict == "skipped", d.Remedy == "", "%+v", d)
		if was, ok := checks[d.Check]; !ok || was.Verdict == "ok" {
			checks[d.Check] = d
		}
	}
	return checks
}

// diagnosed wants a verdict with these texts in detail and remedy.
func diagnosed(t *testing.T, d diagnosis, verdict string, texts ...string) {
	t.Helper()
	assert.Equal(t, verdict, d.Verdict, "%+v", d)
	for _, text := range texts {
		assert.Contains(t, d.Detail+"\n"+d.Remedy, text)
	}
}

// doctor finds nothing on a good node, and names what is wrong and what to do
// on a bad one.
func TestDoctor(t *testing.T) {
	t.Parallel()
	n := started(t)
	daemon := startDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	good := diagnose(t, n, 0)
	for check, d := range good {
		switch check {
		case "disk": // this machine's own
		case "kubelet": // this node has none
			diagnosed(t, d, "warning", "none is found")
		case "parallel unpacking":
			diagnosed(t, d, "advice", "containerd 2.", "set max_concurrent_unpacks = 4")
		default:
			assert.Contains(t, []string{"ok", "skipped"}, d.Verdict, "%+v", d)
		}
	}
	diagnosed(t, good["snapshotter"], "ok", "overlayfs, as CRI says")
	diagnosed(t, good["image file system"], "ok", n.Dir+"/containerd/root/", "space for")
	diagnosed(t, good["containerd"], "ok", n.Containerd.Socket+", 2.")
	daemon.Stop()
	diagnosed(t, diagnose(t, n, 0)["daemon"], "warning", "systemctl enable --now image-update-agent")

	n.WriteFile(templateDir+"broken.yaml", "kind: [\n")
	n.WriteFile(templateDir+"gone.yaml", podYAML("gone", n.Registry.Ref("demo/nosuch:1.0.0-rev1")))
	n.WriteFile(manifestDir+"velum.yaml~", "x")
	n.WriteFile(grainFile, "a: 1\na: 2\n")
	checks := diagnose(t, n, 1)
	diagnosed(t, checks["broken.yaml"], "failed", "template: ", "correct the file")
	diagnosed(t, checks["gone.yaml"], "failed", "404: not found", "copy it into the mirror")
	diagnosed(t, checks["pod manifests"], "warning", "velum.yaml~", "leading dot")
	diagnosed(t, checks["grains"], "failed", "line 2: duplicate key", "repair the file")

	n.Registry.Down()
	diagnosed(t, diagnose(t, n, 1)["velum.yaml"], "failed", "connection refused", "hosts.toml of "+n.Registry.Host)
	n.Containerd.Stop()
	diagnosed(t, diagnose(t, n, 1)["containerd"], "failed", "systemctl start containerd")
	require.NoError(t, os.RemoveAll(n.Path(manifestDir)))
	diagnosed(t, diagnose(t, n, 1)["pod manifests"], "failed", "staticPodPath")
}

// What the node is set up for: doctor says what containerd makes of it, and what
// to set.
func TestDoctorOfTheSetUp(t *testing.T) {
	t.Parallel()
	n := started(t)
	daemon := startDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	n.WriteFile(configFile, "containerd: {snapshotter: native}\nsignatureKeys: [/keys]\n"+
		"repositories: [{match: registry.example.com/*, signatures: require}]\n")
	n.WriteFile("etc/containerd/config.toml", "[plugins.'io.containerd.transfer.v1.local']\nmax_concurrent_unpacks = 3\n")
	n.WriteFile("etc/containerd/certs.d/registry.example.com/hosts.toml", "[host.'https://m1']\ncapabilities = ['pul']\n")
	later := time.Now().Add(time.Hour)
	n.Registry.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Date", later.UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	checks := diagnose(t, n, 1)
	diagnosed(t, checks["snapshotter"], "failed", "native is configured, and CRI uses overlayfs", "remove containerd.snapshotter")
	diagnosed(t, checks["parallel unpacking"], "ok", "3 layers at once")
	diagnosed(t, checks["registry hosts"], "failed",
		n.Path("etc/containerd/certs.d/registry.example.com/hosts.toml")+": unknown capability pul: containerd 2.", "correct the file")
	diagnosed(t, checks["signature keys"], "failed", "no *.pem in ", "nothing is staged of what requires a signature")
	diagnosed(t, checks["velum.yaml"], "failed", "503", "see its log")
	diagnosed(t, checks["clock"], "warning", "behind the clock of "+n.Registry.Host, "timedatectl")

	n.WriteFile(configFile, "containerd: {snapshotter: zfs}\n")
	n.WriteFile("etc/containerd/certs.d/registry.example.com/hosts.toml", "[host.'https://m1']\nca = 'own.pem'\n")
	checks = diagnose(t, n, 1)
	diagnosed(t, checks["snapshotter"], "failed", "zfs: containerd has not loaded it; it has ", "overlayfs", "journalctl -u containerd")
	assert.NotContains(t, checks, "velum.yaml", "one cause, one finding")
	diagnosed(t, checks["registry hosts"], "failed", "own.pem", "nothing can be pulled")
	daemon.Stop()
}

// On containerd 1.6 a hosts.toml without a [host] table counts for nothing,
// as its own pulls show; and a file system that is too small is told with figures.
func TestDoctorOnContainerd16(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd16, ImageSpace: 64 << 20})
	template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	n.WriteFile(configFile, "disk: {reserve: 1GiB, highMark: 85}\n")
	serverOnly := "server = \"" + n.Registry.URL() + "\"\n"
	n.WriteFile("etc/containerd/certs.d/mirrored.invalid/hosts.toml", serverOnly)
	_, err := n.CRI().Pull("mirrored.invalid/demo/velum:4.0.0-rev1")
	require.ErrorContains(t, err, "mirrored.invalid", "it asks upstream")
	checks := diagnose(t, n, 1)
	diagnosed(t, checks["registry hosts"], "failed", "mirrored.invalid/hosts.toml: no [host] table: containerd 1.6.", "add a line with [host]")
	diagnosed(t, checks["image file system"], "warning", "1.1 GB are reserved", "nothing is staged until 1.0 GB more are free", "disk.reserve")
	diagnosed(t, checks["parallel unpacking"], "ok", "containerd 1.6.")

	n.WriteFile("etc/containerd/certs.d/mirrored.invalid/hosts.toml", serverOnly+"[host]\n")
	_, err = n.CRI().Pull("mirrored.invalid/demo/velum:4.0.0-rev1")
	require.NoError(t, err)
	diagnosed(t, diagnose(t, n, 0)["registry hosts"], "ok")
}

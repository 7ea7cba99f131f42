// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// doctor finds no problem on a good node, and names the problem and the remedy on a bad one.
func TestDoctor(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	good := story.Diagnose(t, n, 0)
	for check, d := range good {
		switch check {
		case "disk": // of this machine
		case "kubelet": // this node has no systemd
			story.Diagnosed(t, d, "warning", "flags of kubelet.service are not known: there is no system bus")
		case "parallel unpacking":
			story.Diagnosed(t, d, "advice", "containerd 2.", "set max_concurrent_unpacks = 4")
		default:
			assert.Contains(t, []string{"ok", "skipped"}, d.Verdict, "%+v", d)
		}
	}
	story.Diagnosed(t, good["snapshotter"], "ok", "overlayfs, according to CRI")
	story.Diagnosed(t, good["image filesystem"], "ok", n.Dir+"/containerd/root/", "space for")
	story.Diagnosed(t, good["containerd"], "ok", n.Containerd.Socket+", 2.")
	daemon.Stop()
	story.Diagnosed(t, story.Diagnose(t, n, 0)["daemon"], "warning", "systemctl enable --now image-update-agent")

	n.WriteFile(story.TemplateDir+"broken.yaml", "kind: [\n")
	n.WriteFile(story.TemplateDir+"gone.yaml", story.PodYAML("gone", n.Registry.Ref("demo/nosuch:1.0.0-rev1")))
	n.WriteFile(story.ManifestDir+"velum.yaml~", "x")
	n.WriteFile(story.GrainFile, "a: 1\na: 2\n")
	checks := story.Diagnose(t, n, 1)
	story.Diagnosed(t, checks["broken.yaml"], "failed", "template: ", "correct the file")
	story.Diagnosed(t, checks["gone.yaml"], "failed", "404: not found", "copy the image to the mirror")
	story.Diagnosed(t, checks["pod manifests"], "warning", "velum.yaml~", "leading dot")
	story.Diagnosed(t, checks["grains"], "failed", "line 2: duplicate key", "repair the file")

	n.Registry.Down()
	story.Diagnosed(t, story.Diagnose(t, n, 1)["velum.yaml"], "failed", "connection refused", "hosts.toml of "+n.Registry.Host)
	n.Containerd.Stop()
	story.Diagnosed(t, story.Diagnose(t, n, 1)["containerd"], "failed", "systemctl start containerd")
	require.NoError(t, os.RemoveAll(n.Path(story.ManifestDir)))
	story.Diagnosed(t, story.Diagnose(t, n, 1)["pod manifests"], "failed", "staticPodPath")
}

// doctor reports containerd's view of the node's setup, and the settings to change.
func TestDoctorOfTheSetUp(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	n.WriteFile(story.ConfigFile, "containerd: {snapshotter: native}\nsignatureKeys: [/keys]\n"+
		"repositories: [{match: registry.example.com/*, signatures: require}]\n")
	n.WriteFile("etc/containerd/config.toml", "[plugins.'io.containerd.transfer.v1.local']\nmax_concurrent_unpacks = 3\n")
	n.WriteFile("etc/containerd/certs.d/registry.example.com/hosts.toml", "[host.'https://m1']\ncapabilities = ['pul']\n")
	later := time.Now().Add(time.Hour)
	n.Registry.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Date", later.UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	checks := story.Diagnose(t, n, 1)
	story.Diagnosed(t, checks["snapshotter"], "failed", "native is configured, but CRI uses overlayfs", "remove containerd.snapshotter")
	story.Diagnosed(t, checks["parallel unpacking"], "ok", "3 layers at once")
	story.Diagnosed(t, checks["registry hosts"], "failed",
		n.Path("etc/containerd/certs.d/registry.example.com/hosts.toml")+": unknown capability: want pull, resolve, push, referrers: containerd 2.", "correct the file")
	story.Diagnosed(t, checks["signature keys"], "failed", "no valid *.pem file in ", "the agent stages no image that requires a signature")
	story.Diagnosed(t, checks["velum.yaml"], "failed", "503", "see the log of the registry")
	story.Diagnosed(t, checks["clock"], "warning", "behind the clock of "+n.Registry.Host, "timedatectl")

	n.WriteFile(story.ConfigFile, "containerd: {snapshotter: zfs}\n")
	n.WriteFile("etc/containerd/certs.d/registry.example.com/hosts.toml", "[host.'https://m1']\nca = 'own.pem'\n")
	checks = story.Diagnose(t, n, 1)
	story.Diagnosed(t, checks["snapshotter"], "failed", "zfs: containerd has not loaded this snapshotter, only ", "overlayfs", "journalctl -u containerd")
	assert.NotContains(t, checks, "velum.yaml", "one cause, one finding")
	story.Diagnosed(t, checks["registry hosts"], "failed", "own.pem", "cannot pull from these hosts")
	daemon.Stop()
}

// containerd 1.6 ignores a hosts.toml without a [host] table, as its own pulls show; and a filesystem that is too small
// is reported with figures.
func TestDoctorOnContainerd16(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd16, ImageSpace: 64 << 20})
	story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	n.WriteFile(story.ConfigFile, "disk: {reserve: 1GiB, highMark: 85}\n")
	serverOnly := "server = \"" + n.Registry.URL() + "\"\n"
	n.WriteFile("etc/containerd/certs.d/mirrored.invalid/hosts.toml", serverOnly)
	_, err := n.CRI().Pull("mirrored.invalid/demo/velum:4.0.0-rev1")
	require.ErrorContains(t, err, "mirrored.invalid", "it asks upstream")
	checks := story.Diagnose(t, n, 1)
	story.Diagnosed(t, checks["registry hosts"], "failed", "mirrored.invalid/hosts.toml: no [host] table: containerd 1.6.", "add a line [host]")
	story.Diagnosed(t, checks["image filesystem"], "warning", "1.1 GB are reserved", "the agent stages nothing until 1.0 GB more are free", "disk.reserve")
	story.Diagnosed(t, checks["parallel unpacking"], "ok", "containerd 1.6.")

	n.WriteFile("etc/containerd/certs.d/mirrored.invalid/hosts.toml", serverOnly+"[host]\n")
	_, err = n.CRI().Pull("mirrored.invalid/demo/velum:4.0.0-rev1")
	require.NoError(t, err)
	story.Diagnosed(t, story.Diagnose(t, n, 0)["registry hosts"], "ok")
}

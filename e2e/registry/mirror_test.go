// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// pageHosts writes a hosts.toml of docs/air-gap.md for a mirror of the node's first registry.
func pageHosts(t *testing.T, n *node.Node, mirror *node.Registry, block int) {
	t.Helper()
	text := strings.NewReplacer(
		"https://"+story.DocMirror, mirror.URL(), "/etc/pki/trust/anchors/"+story.DocMirror+".crt", mirror.CA,
		"\"https://"+story.DocHost, "\""+n.Registry.URL(),
	).Replace(story.AirGap(t, "## A mirror").Block(t, "toml", block))
	if mirror.CA == "" {
		text = strings.Replace(text, "ca = \"\"", "", 1)
	}
	n.WriteFile("etc/containerd/certs.d/"+story.DocHost+"/hosts.toml", text)
}

// ways are ways to name a repository with a prefix.
var ways = map[string]struct {
	version node.Version
	mirror  bool // the status calls the host a mirror
	set     func(t *testing.T, n *node.Node, mirror *node.Registry)
}{
	"hosts.toml": {node.Containerd16, true, func(t *testing.T, n *node.Node, mirror *node.Registry) { pageHosts(t, n, mirror, 0) }},
	"rewrites": {node.Containerd2, false, func(_ *testing.T, n *node.Node, mirror *node.Registry) {
		n.WriteFile(story.ConfigFile, "rewrites:\n- {from: "+story.DocHost+", to: "+mirror.Ref(story.DocHost)+"}\n")
	}},
}

// TestShortTagsOnly uses a mirror that has only short tags: pods follow the short tag, and its current digest is the
// update. The agent does not ask upstream.
func TestShortTagsOnly(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: way.version, Kubelet: true})
			mirror := story.GuideMirror(t, n)
			way.set(t, n, mirror)
			repository := story.DocHost + "/caasp/v4/velum"
			mirror.Push(repository, node.Image{Answer: "one"}, "4.0.0")
			port := n.FreePort()
			story.Template(n, port, repository+":4.0.0")
			n.WriteFile(story.GrainFile, "roles: [admin]\n")
			story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
			velum := story.ImageOf(t, story.Check(t, n), "velum.yaml")
			assert.Empty(t, velum.Notes)
			assert.Equal(t, "4.0.0", velum.Follow)
			assert.Equal(t, mirror.Host, velum.Host)
			assert.Equal(t, way.mirror, velum.Mirror)
			written := n.ReadFile(story.VelumYAML)
			assert.Contains(t, written, velum.Image+":4.0.0 # the dashboard\n")
			n.WaitAnswer(port, "one")

			two := mirror.Push(repository, node.Image{Answer: "two"}, "4.0.0")
			s := story.Check(t, n)
			require.Equal(t, status.StateStaged, s.State, s.Reason)
			velum = story.ImageOf(t, s, "velum.yaml")
			assert.Equal(t, "rebuild", velum.Change)
			assert.Equal(t, &status.Named{Tag: "4.0.0", Digest: velum.Offered.Digest}, velum.Offered)
			assert.Equal(t, two, velum.Offered.Digest.String())
			images, _ := story.Stored(t, n)
			assert.Contains(t, images[velum.Image+"@"+two], two, "staged by its digest")
			assert.Contains(t, story.Pins(t, n), two)
			assert.Contains(t, n.ReadFile(story.GrainFile), "image_update_available: true\n")
			assert.Equal(t, written, n.ReadFile(story.VelumYAML))
			story.Answers(t, port, "one")

			story.Apply(t, n, 0, "velum.yaml")
			n.WaitAnswer(port, "two")
			story.IsCurrent(t, story.St(t, n))
			for _, r := range n.Registry.Requests() {
				assert.Equal(t, "pause", r.Repository, "upstream is asked for nothing of velum's")
			}
		})
	}
}

// TestPollingOff checks that, with polling off, the daemon observes the node but asks the registry only on a user's
// request.
func TestPollingOff(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	n.WriteFile("etc/image-update-agent/config.d/air-gap.yaml", story.AirGap(t, "## A mirror").Block(t, "yaml", 1)+"\n")
	n.Registry.Forget()
	for range 2 { // nor does a restart poll
		daemon := story.StartDaemonWith(t, n)
		story.St(t, n)
		for range 3 {
			n.WriteFile(story.GrainFile, "roles: [admin]\n")
			story.Hangup(t, n, daemon)
			assert.Contains(t, n.ReadFile(story.GrainFile), "image_update_available: false\n", "it has looked")
			s := story.St(t, n)
			story.IsCurrent(t, s)
			assert.Nil(t, s.NextCheck)
		}
		assert.Regexp(t, `Next check: +polling is off\n`, n.Agent("status").Stdout)
		assert.Equal(t, 0, daemon.Stop().Code)
	}
	assert.Empty(t, n.Registry.Requests())

	daemon := story.StartDaemonWith(t, n)
	s := story.Check(t, n)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Nil(t, s.NextCheck)
	assert.NotEmpty(t, n.Registry.Requests())
	n.Registry.Forget()
	story.Hangup(t, n, daemon)
	assert.Equal(t, status.StateStaged, story.St(t, n).State)
	n.Registry.Down()
	s = story.Check(t, n)
	assert.Equal(t, status.StateStale, s.State)
	n.Registry.Up()
	n.Registry.Forget()
	story.Hangup(t, n, daemon)
	story.Hangup(t, n, daemon)
	assert.Empty(t, n.Registry.Requests(), "nor does a failure")
}

// rsync runs a command block of the page with the storage directories of these registries.
func rsync(t *testing.T, block string, external, internal *node.Registry, stick string, options ...string) {
	t.Helper()
	words := strings.Fields(strings.NewReplacer("/mnt/storage/registry", stick).Replace(block))
	require.Equal(t, "rsync", words[0])
	storage := external.Storage()
	if words[len(words)-1] == "/var/lib/registry/" {
		storage = internal.Storage()
	}
	for i := range words {
		words[i] = strings.Replace(words[i], "/var/lib/registry", storage, 1)
	}
	out, err := exec.CommandContext(t.Context(), "rsync", append(options, words[1:]...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestRsyncedMirror copies a registry's storage to the mirror by rsync. A node that sees an incomplete copy changes
// nothing.
func TestRsyncedMirror(t *testing.T) {
	t.Parallel()
	doc := story.AirGap(t, "## A mirror by rsync")
	out, in := doc.Block(t, "sh", 0), doc.Block(t, "sh", 1)
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	external, internal, stick := n.StartRegistryWith(node.RegistryOptions{Program: node.Distribution26}), story.GuideMirror(t, n), t.TempDir()
	carry := func(options ...string) {
		rsync(t, out, external, internal, stick)
		rsync(t, in, external, internal, stick, options...)
	}
	pageHosts(t, n, internal, 0)
	n.Registry.Down()
	repository := story.DocHost + "/caasp/v4/velum"
	n.WriteFile(story.TemplateDir+"velum.yaml", story.PodYAML("velum", repository+":4.0.0-rev1"))
	n.WriteFile(story.GrainFile, "roles: [admin]\n")
	one := external.Push(repository, node.Image{Answer: "one"}, "4.0.0-rev1")
	carry()
	s := story.Cycle(t, n, 0)
	story.IsCurrent(t, s)
	before := story.Look(t, n, story.GrainFile)

	two := external.Push(repository, node.Image{Answer: "two"}, "4.0.0-rev2")
	carry("--exclude=/docker/registry/v2/repositories")
	story.IsCurrent(t, story.Cycle(t, n, 0))
	require.NoError(t, os.RemoveAll(filepath.Join(internal.Storage(), "docker/registry/v2/blobs/sha256", two[7:9], two[7:])))
	carry("--exclude=/docker/registry/v2/blobs")
	s = story.Cycle(t, n, 0)
	story.IsCurrent(t, s)
	assert.Contains(t, n.Agent("plan").Stdout, "refused by missing: listed, but not usable: ")
	before.Unchanged(t, n, story.GrainFile)

	first := filepath.Join(internal.Storage(), "docker/registry/v2/blobs/sha256", one[7:9], one[7:])
	require.NoError(t, os.Rename(first, first+".gone")) // as --delete alone would do
	s = story.Cycle(t, n, 1)
	assert.Contains(t, s.Reason, "velum.yaml: the registry no longer has the followed tag")
	before.Unchanged(t, n, story.GrainFile)
	carry()
	s = story.Cycle(t, n, 0)
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	velum := story.ImageOf(t, s, "velum.yaml")
	assert.Equal(t, two, velum.Offered.Digest.String())
	assert.Equal(t, internal.Host, velum.Host)
}

// TestOldMirrorConvertsOCI checks that a mirror that knows only Docker's media types refuses an image with OCI types.
// Converted during the copy, the image has another digest, with which the agent offers it.
func TestOldMirrorConvertsOCI(t *testing.T) {
	t.Parallel()
	n, rev2 := offline(t, true)
	mirror := n.StartRegistryWith(node.RegistryOptions{Program: node.Distribution26})
	doc, dir := story.AirGap(t, "## A mirror"), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "images.yaml"), []byte(doc.Block(t, "yaml", 0)), 0o600))
	copying := strings.ReplaceAll(doc.Block(t, "sh", 0), story.DocMirror, mirror.Host)
	out, err := story.Skopeo(t, n, dir, copying)
	require.Error(t, err)
	require.Contains(t, out, "manifest invalid")
	require.Contains(t, string(story.AirGap(t, "## A mirror by rsync")), "refuses OCI images (`manifest invalid`)")
	out, err = story.Skopeo(t, n, dir, strings.ReplaceAll(copying, " --preserve-digests", ""))
	require.NoError(t, err, out)
	n.Registry.Down()
	pageHosts(t, n, mirror, 0)
	s := story.Cycle(t, n, 0)
	velum := story.ImageOf(t, s, "velum.yaml")
	require.NotNil(t, velum.Offered)
	assert.NotEqual(t, rev2, velum.Offered.Digest.String())
	offered(t, n, s, velum.Offered.Digest.String())
}

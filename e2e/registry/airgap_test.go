// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
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

// offline returns a node with velum at rev1 and with rev2 published: as an image with OCI media types, or as an index
// with Docker's.
func offline(t *testing.T, oci bool) (n *node.Node, rev2 string) {
	t.Helper()
	n = node.Start(t, node.Options{Containerd: node.Containerd2})
	n.WriteHosts(story.DocHost, n.Registry)
	story.Template(n, 1, story.DocHost+"/caasp/v4/velum:__TAG__")
	n.WriteFile(story.GrainFile, "roles: [admin]\n")
	image := node.Image{OCI: oci, Layers: []node.Layer{{Seed: 1, Size: 1 << 20}}}
	if !oci {
		image.Platforms = []string{"linux/amd64", "linux/arm64"}
	}
	n.Registry.Publish("caasp/v4/velum", "4.0.0-rev1-build1.1", image)
	s := story.Cycle(t, n, 0)
	story.IsCurrent(t, s)
	image.Layers = []node.Layer{{Seed: 2, Size: 1 << 20}}
	return n, n.Registry.Publish("caasp/v4/velum", "4.0.0-rev2-build1.5", image)
}

// offered asserts that rev2 is staged and waits for approval.
func offered(t *testing.T, n *node.Node, s status.Status, digest string) {
	t.Helper()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	velum := story.ImageOf(t, s, "velum.yaml")
	assert.Equal(t, "revision", velum.Change)
	assert.True(t, velum.Staged)
	require.NotNil(t, velum.Offered)
	assert.Equal(t, "4.0.0-rev2", velum.Offered.Tag, "the long tag has not come along")
	assert.Equal(t, digest, velum.Offered.Digest.String())
	images, _ := story.Stored(t, n)
	assert.Contains(t, images[story.DocHost+"/caasp/v4/velum@"+digest], digest, "so its digest is its name")
	assert.Contains(t, n.ReadFile(story.Waiting), "velum:4.0.0-rev2")
	assert.Contains(t, n.ReadFile(story.VelumYAML), "velum:4.0.0-rev1")
	assert.Contains(t, n.ReadFile(story.GrainFile), "image_update_available: true\nimage_update_state: \"staged\"\n")
}

// packed packs the directory of removable media into a tar file, with the page's command.
func packed(t *testing.T, stick string) string {
	t.Helper()
	tar := stick + ".tar"
	out, err := exec.CommandContext(t.Context(), "tar", "-cf", tar, "-C", stick, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.RemoveAll(stick))
	return tar
}

// TestRemovableMedia brings rev2 on removable media to a node whose registry is away, as docs/air-gap.md describes.
func TestRemovableMedia(t *testing.T) {
	t.Parallel()
	doc := story.AirGap(t, "## Removable media")
	copying, running := doc.Block(t, "sh", 0), strings.Split(doc.Block(t, "sh", 1), "\n")
	for _, kind := range []string{"directory", "tar file"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n, rev2 := offline(t, true)
			stick := filepath.Join(t.TempDir(), "images")
			out, err := story.Skopeo(t, n, "", strings.ReplaceAll(copying, story.DocMedia, stick))
			require.NoError(t, err, out)
			if kind == "tar file" {
				stick = packed(t, stick)
			}
			here := strings.NewReplacer(story.DocMedia, stick)
			n.Registry.Down()

			require.Equal(t, []string{"systemctl stop image-update-agent", "systemctl start image-update-agent"},
				[]string{running[0], running[3]}, "the two that a node without systemd cannot do")
			r := n.Agent(strings.Fields(here.Replace(running[1]))[1:]...)
			require.Equal(t, 0, r.Code, r.Stderr)
			assert.Contains(t, r.Stdout, "revision: 4.0.0-rev1 -> 4.0.0-rev2, from mirror oci:")
			assert.NoFileExists(t, n.Path(story.Waiting))
			n.Registry.Forget()
			r = n.Agent(append(strings.Fields(here.Replace(running[2]))[1:], "--output", "json")...)
			require.Equal(t, 0, r.Code, "%s\n%s", r.Stdout, r.Stderr)
			s := story.Parsed(t, r)
			offered(t, n, s, rev2)
			assert.Equal(t, "oci:"+stick, s.Sources[0].Host)
			assert.True(t, s.Sources[0].Mirror)

			// The daemon keeps the release staged without the removable media; an apply waits for the registry.
			require.NoError(t, os.RemoveAll(stick))
			story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
			node.Eventually(t, "first cycle of the daemon", story.Ready, func() error {
				if strings.Contains(n.Agent("status").Stdout, "4.0.0-rev2") {
					return nil
				}
				return errors.New("no offer")
			})
			offered(t, n, story.St(t, n), rev2)
			story.Apply(t, n, 4, "velum.yaml")
			assert.Contains(t, n.ReadFile(story.VelumYAML), "velum:4.0.0-rev1")
			assert.Contains(t, story.St(t, n).Reason, "registry does not answer")
			assert.Contains(t, n.ReadFile(story.GrainFile), "image_update_available: true\n")
		})
	}
}

// TestDamagedRemovableMedia checks that damaged removable media change nothing, and that the error names them.
func TestDamagedRemovableMedia(t *testing.T) {
	t.Parallel()
	n, _ := offline(t, true)
	stick := filepath.Join(t.TempDir(), "images")
	out, err := story.Skopeo(t, n, "", strings.ReplaceAll(story.AirGap(t, "## Removable media").Block(t, "sh", 0), story.DocMedia, stick))
	require.NoError(t, err, out)
	n.Registry.Down()
	before := story.Look(t, n, story.GrainFile)
	blobs, err := filepath.Glob(filepath.Join(stick, "blobs/sha256/*"))
	require.NoError(t, err)
	for _, blob := range blobs {
		info, err := os.Stat(blob)
		require.NoError(t, err)
		if info.Size() >= 1<<20 { // layers
			require.NoError(t, os.Truncate(blob, info.Size()-1))
		}
	}
	r := n.Agent("run", "--once", "--source", "oci:"+stick, "--output", "json")
	assert.Equal(t, 1, r.Code)
	s := story.Parsed(t, r)
	assert.Equal(t, status.StateFailed, s.State, s.Reason)
	assert.Contains(t, s.Reason, "oci:"+stick)
	assert.Contains(t, s.Reason, "bytes, not")
	before.Unchanged(t, n, story.GrainFile)
	require.NoError(t, os.RemoveAll(filepath.Join(stick, "blobs")))
	r = n.Agent("run", "--once", "--source", "oci:"+stick, "--output", "json")
	assert.Equal(t, 1, r.Code)
	s = story.Parsed(t, r)
	assert.Contains(t, s.Sources[0].Error, "blob is missing")
	assert.Equal(t, 1, s.Sources[0].Failures)
	before.Unchanged(t, n, story.GrainFile)
}

// TestRemovableMediaConvertDockersTypes checks that skopeo refuses to convert Docker's media types while it must keep
// the digest, with the error that the page quotes.
func TestRemovableMediaConvertDockersTypes(t *testing.T) {
	t.Parallel()
	n, rev2 := offline(t, false)
	stick := filepath.Join(t.TempDir(), "images")
	doc := story.AirGap(t, "## Removable media")
	copying := strings.ReplaceAll(doc.Block(t, "sh", 0), story.DocMedia, stick)
	out, err := story.Skopeo(t, n, "", copying)
	require.Error(t, err)
	require.Contains(t, out, "Instructed to preserve digests")
	require.Contains(t, string(doc), "`Instructed to preserve digests`")
	out, err = story.Skopeo(t, n, "", strings.ReplaceAll(copying, " --preserve-digests", ""))
	require.NoError(t, err, out)
	n.Registry.Down()
	r := n.Agent("run", "--once", "--source", "oci:"+stick, "--output", "json")
	require.Equal(t, 0, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	s := story.Parsed(t, r)
	velum := story.ImageOf(t, s, "velum.yaml")
	require.NotNil(t, velum.Offered)
	assert.NotEqual(t, rev2, velum.Offered.Digest.String())
	offered(t, n, s, velum.Offered.Digest.String())
}

// TestMirror fills a mirror from the registry or from removable media; the node pulls from it with the page's
// hosts.toml while the registry is away.
func TestMirror(t *testing.T) {
	t.Parallel()
	doc, media := story.AirGap(t, "## A mirror"), story.AirGap(t, "## Removable media")
	for hosts, way := range []string{"sync", "removable media"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			n, rev2 := offline(t, true)
			mirror := n.StartRegistry(false)
			dir := t.TempDir()
			here := strings.NewReplacer(story.DocMirror, mirror.Host, story.DocMedia, filepath.Join(dir, "images"))
			copying := doc.Block(t, "sh", 0)
			if way == "removable media" {
				copying = media.Block(t, "sh", 0) + "\n" + media.Block(t, "sh", 2)
			}
			list := doc.Block(t, "yaml", 0)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "images.yaml"), []byte(list), 0o600))
			out, err := story.Skopeo(t, n, dir, here.Replace(copying))
			require.NoError(t, err, out)
			n.Registry.Down()
			pageHosts(t, n, mirror, hosts)
			n.WriteFile("etc/image-update-agent/config.d/air-gap.yaml", doc.Block(t, "yaml", 1)+"\n")
			require.Equal(t, "image-update-agent check\nimage-update-agent apply", doc.Block(t, "sh", 2))
			story.StartDaemonWith(t, n)
			s := story.Check(t, n)
			offered(t, n, s, rev2)
			assert.Equal(t, mirror.Host, s.Sources[0].Host)
			assert.Nil(t, s.NextCheck, "polling is off")
		})
	}
}

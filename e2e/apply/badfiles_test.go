// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// spoiled are ways in which a file is unusable, and the reported errors.
var spoiled = map[string]struct {
	put  func(path string) error
	want string
}{
	"broken.yaml": {write("apiVersion: v1\nkind: Pod\nspec: [\n", 0o644), "line 3"},
	"tab.yaml":    {write("apiVersion: v1\nkind: Pod\nmetadata:\n\tname: tab\n", 0o644), "line 4"},
	"empty.yaml":  {write("", 0o644), "empty"},
	"list.yaml":   {write("apiVersion: v1\nkind: PodList\nitems: []\n", 0o644), "kubelet runs one Pod per file"},
	"nopod.yaml":  {write("apiVersion: apps/v1\nkind: Deployment\n", 0o644), `kind "Deployment": not a Pod`},
	"huge.yaml":   {write(strings.Repeat("#", 1<<20+1), 0o644), "too large"},
	"dir.yaml":    {func(path string) error { return os.Mkdir(path, 0o755) }, "unsafe: directory"},
	"link.yaml":   {func(path string) error { return os.Symlink("nowhere.yaml", path) }, "unsafe: symlink"},
	"fifo.yaml":   {func(path string) error { return unix.Mkfifo(path, 0o644) }, "unsafe: fifo"},
	"world.yaml":  {write(story.PodYAML("world", "x/y:1"), 0o666), "unsafe: mode 0666"},
	"foreign.yaml": {func(path string) error {
		if err := write(story.PodYAML("foreign", "x/y:1"), 0o644)(path); err != nil {
			return err
		}
		return os.Chown(path, 4711, 0)
	}, "unsafe: owned by user 4711"},
}

func write(text string, mode os.FileMode) func(path string) error {
	return func(path string) error {
		err := os.WriteFile(path, []byte(text), 0o600)
		if err != nil {
			return err
		}
		return os.Chmod(path, mode)
	}
}

// An unusable template or pod manifest is left unchanged and named, and does not prevent updates of other pods.
func TestSpoiledFiles(t *testing.T) {
	t.Parallel()
	for _, place := range []struct{ name, dir, others string }{
		{"templates", story.TemplateDir, story.ManifestDir},
		{"pod manifests", story.ManifestDir, story.TemplateDir},
	} {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: node.Containerd2})
			story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
			story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
			story.Cycle(t, n, 0)
			story.Rel(n, "demo/velum", "4.0.0-rev2-build1.1")
			for name, bad := range spoiled {
				require.NoError(t, bad.put(n.Path(place.dir+name)))
				// The other file of the pod is valid, and must not be touched either.
				n.WriteFile(place.others+name, story.PodYAML(strings.TrimSuffix(name, ".yaml"), n.Registry.Ref("demo/velum:4.0.0-rev1")))
			}
			before := story.Look(t, n, story.GrainFile, story.WaitingDir)

			s := story.Cycle(t, n, 1)
			assert.Equal(t, status.StateFailed, s.State)
			for name, bad := range spoiled {
				said := story.PodOf(t, s, name).Error
				assert.Contains(t, said, bad.want, name)
				assert.Contains(t, s.Reason, said)
				assert.NoFileExists(t, n.Path(story.WaitingDir+name))
			}
			assert.Equal(t, "revision", story.PodOf(t, s, "velum.yaml").Change, "its update is offered all the same")
			assert.True(t, story.ImageOf(t, s, "velum.yaml").Staged)
			assert.Contains(t, n.ReadFile(story.Waiting), "velum:4.0.0-rev2")
			assert.Equal(t, before.Files, story.Look(t, n, story.GrainFile, story.WaitingDir).Files)
		})
	}
}

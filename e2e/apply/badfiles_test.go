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

// A grains file that must not be written is left unchanged, and nothing else is written meanwhile: the owner of the
// node is unknown.
func TestSpoiledGrains(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	for name, bad := range map[string]struct {
		put  func(path string) error
		want string
	}{
		"broken":    {write("roles:\n- [admin\n", 0o644), "did not find expected"},
		"duplicate": {write("a: 1\na: 2\n", 0o644), `line 2: duplicate key "a"`},
		"tab":       {write("a:\t1\n", 0o644), "line 1: a tab"},
		"list":      {write("- a\n", 0o644), "mapping"},
		"documents": {write("a: 1\n---\nb: 2\n", 0o644), "document"},
		"directory": {spoiled["dir.yaml"].put, "unsafe: directory"},
		"symlink":   {spoiled["link.yaml"].put, "unsafe: symlink"},
		"fifo":      {spoiled["fifo.yaml"].put, "unsafe: fifo"},
		"world":     {write("a: 1\n", 0o666), "unsafe: mode 0666"},
		"foreign":   {spoiled["foreign.yaml"].put, "unsafe: owned by user 4711"},
	} {
		t.Run(name, func(t *testing.T) {
			path := n.Path(story.GrainFile)
			require.NoError(t, os.RemoveAll(path))
			require.NoError(t, bad.put(path))
			before := story.Look(t, n)
			s := story.Cycle(t, n, 1)
			assert.Equal(t, status.StateFailed, s.State)
			assert.Contains(t, s.Reason, bad.want)
			assert.Contains(t, s.Reason, path)
			assert.Contains(t, story.PodOf(t, s, "velum.yaml").Holds[0].Reason, bad.want)
			assert.Equal(t, before.Files, story.Look(t, n).Files)
		})
	}
	require.NoError(t, os.Remove(n.Path(story.GrainFile)))
	n.WriteFile(story.GrainFile, "roles: [admin]\n")
	story.Cycle(t, n, 0)
	assert.FileExists(t, n.Path(story.VelumYAML), "once the file is repaired, all goes on")
	assert.Contains(t, n.ReadFile(story.GrainFile), "roles: [admin]\n")
}

// styles are ways to write a template, with IMAGE for the reference, and the expected results.
var styles = map[string]struct{ template, want string }{
	"crlf": {
		strings.ReplaceAll(story.PodYAML("crlf", "IMAGE # x"), "\n", "\r\n"),
		strings.ReplaceAll(story.PodYAML("crlf", "TAGGED # x\n    imagePullPolicy: Always"), "\n", "\r\n"),
	},
	"bom": {
		"\ufeff" + story.PodYAML("bom", `"IMAGE"`),
		"\ufeff" + story.PodYAML("bom", "\"TAGGED\"\n    imagePullPolicy: Always"),
	},
	"nonewline": {
		strings.TrimSuffix(story.PodYAML("nonewline", "IMAGE"), "\n"),
		strings.TrimSuffix(story.PodYAML("nonewline", "TAGGED\n    imagePullPolicy: Always"), "\n"),
	},
	"tabs": {
		story.PodYAML("tabs", "IMAGE\t# a\ttab\n    imagePullPolicy:\tNever\t#\tx"),
		story.PodYAML("tabs", "TAGGED\t# a\ttab\n    imagePullPolicy:\tNever\t#\tx"),
	},
	"anchors": {
		story.PodYAML("anchors", "&velum IMAGE\n    imagePullPolicy: Always\n  - {name: two, image: *velum, imagePullPolicy: Always}"),
		story.PodYAML("anchors", "&velum TAGGED\n    imagePullPolicy: Always\n  - {name: two, image: *velum, imagePullPolicy: Always}"),
	},
	"flow": {
		"{apiVersion: v1, kind: Pod, metadata: {name: flow}, spec: {containers: [{name: a, image: IMAGE}]}}\n",
		"",
	},
	"flowspec": {
		"apiVersion: v1\nkind: Pod\nmetadata: {name: flowspec}\nspec: {containers: [{name: a, image: 'IMAGE'}]}\n",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: flowspec}\nspec: {containers: [{name: a, image: 'TAGGED', imagePullPolicy: Always}]}\n",
	},
}

// In any style, a template is rendered in place or reported.
func TestStylesOfTemplates(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	for name, style := range styles {
		n.WriteFile(story.TemplateDir+name+".yaml", strings.ReplaceAll(style.template, "IMAGE", n.Registry.Ref("demo/velum:__TAG__")))
	}
	s := story.Cycle(t, n, 1)
	for name, style := range styles {
		if style.want == "" {
			assert.Contains(t, story.PodOf(t, s, name+".yaml").Error, "begins with { and so is read as JSON")
			assert.NoFileExists(t, n.Path(story.ManifestDir+name+".yaml"))
			continue
		}
		want := strings.ReplaceAll(style.want, "TAGGED", n.Registry.Ref("demo/velum:4.0.0-rev1"))
		assert.Equal(t, want, n.ReadFile(story.ManifestDir+name+".yaml"), name)
	}
	left := map[string]string{}
	for _, p := range s.PodManifests {
		for _, l := range p.Untouched {
			left[p.PodManifest] += l.Reason
		}
	}
	assert.Equal(t, map[string]string{"tabs.yaml": "pull-policy-never"}, left)
}

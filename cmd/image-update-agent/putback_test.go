// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asideFrom is what the directory of pod manifests of a node below root holds,
// two files of which are set aside, and one that was written anew.
func asideFrom(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, text := range map[string]string{
		".b.yaml.image-update-agent-aside": "b", ".a.yaml.image-update-agent-aside": "a",
		".c.yaml.image-update-agent-aside": "old", "c.yaml": "new", ".d.yaml.swp": "an editor's",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
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
			for file, text := range map[string]string{
				c.file: "podManifest: /elsewhere\n", "var/lib/kubelet/config.yaml": c.kubelet,
			} {
				require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
			}
			dir := filepath.Join(root, c.name)
			asideFrom(t, dir)
			var out, errs bytes.Buffer
			code := execute(t.Context(), []string{"put-back", "--root", root}, streams{in: strings.NewReader(""), out: &out, err: &errs})
			assert.Equal(t, exitUsage, code)
			assert.Contains(t, errs.String(), "podManifest")
			assert.Equal(t, "a.yaml\nb.yaml\n", out.String())
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
	var out, errs bytes.Buffer
	code := execute(t.Context(), []string{"put-back", "--root", root}, streams{in: strings.NewReader(""), out: &out, err: &errs})
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs.String(), "a.yaml: in its place: unsafe: directory")
	assert.Equal(t, "b.yaml\n", out.String(), "the others came back")
}

func TestPutBackIsForTheUnit(t *testing.T) {
	t.Parallel()
	help := does(t)
	assert.Contains(t, help, "  apply ")
	assert.NotContains(t, help, "put-back")
	assert.Contains(t, does(t, "put-back", "--help"), "Examples:")
	assert.Contains(t, man(t, page8), "image-update-agent put-back")
}

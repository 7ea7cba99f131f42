// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// e2e/neighbours compares generated configurations with containerd's own code.
func TestImportsOfContainerd(t *testing.T) {
	t.Parallel()
	const (
		cri   = "[plugins.'io.containerd.grpc.v1.cri'.registry]\n"
		here  = cri + "config_path = '/here'\n"
		other = cri + "config_path = '/other'\n"
		limit = "[plugins.'io.containerd.grpc.v1.cri']\nmax_concurrent_downloads = 3\n"
		a     = "imports = ['config.d/a.toml']\n"
	)
	for name, c := range map[string]struct {
		main, fragment, path, path1 string // without their version = 2
	}{
		"a glob":                 {"imports = ['/etc/containerd/config.d/*.toml']\n", other, "/other", "/other"},
		"a relative path":        {a, other, "/other", "/other"},
		"not imported":           {here, other, "/here", "/here"},
		"the later file wins":    {a + here, other, "/other", "/other"},
		"another key of a table": {a + here, limit, "/here", ""},
		"an empty value":         {a + here, cri + "config_path = ''\n", "", ""},
		"a circle":               {"imports = ['config.toml', 'config.d/a.toml']\n", "imports = ['../config.toml']\n" + other, "/other", "/other"},
	} {
		own := readCertsD(platform.Detect(tree(t, map[string]string{
			containerdFile: "version = 2\n" + c.main, "/etc/containerd/config.d/a.toml": "version = 2\n" + c.fragment,
		})), false)
		require.NoError(t, own.err, name)
		assert.Equal(t, [2]string{c.path, c.path1}, [2]string{own.Path("v2.4.2"), own.Path("1.7.24")}, name)
		assert.Equal(t, c.path == c.path1 && c.path != "", own.Counts(), name)
	}
}

// From the table containerd of 1.x, 2.x uses the settings of pulls only if it has runtimes.
func TestSettingsThatMakeContainerdPullByItsClient(t *testing.T) {
	t.Parallel()
	const (
		containerd = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\n"
		runtimes   = "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]\n"
	)
	for text, want := range map[string]bool{
		containerd + "discard_unpacked_layers = true\n":                                                     false,
		containerd + "discard_unpacked_layers = true\n" + runtimes:                                          true,
		containerd + "disable_snapshot_annotations = false\n" + runtimes:                                    true,
		"version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nuse_local_image_pull = true\n":                 false,
		"version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nimage_pull_with_sync_fs = true\n":              true,
		"version = 3\n[plugins.'io.containerd.cri.v1.images']\ndiscard_unpacked_layers = true\n":            true,
		"version = 3\n[plugins.'io.containerd.cri.v1.images'.containerd]\ndiscard_unpacked_layers = true\n": false,
	} {
		own := readCertsD(platform.Detect(tree(t, map[string]string{containerdFile: text})), false)
		assert.Equal(t, want, own.PullsByClient(), text)
	}
}

func TestUnreadableContainerdConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ main, want string }{
		"broken":               {"[", "config.toml"},
		"a broken fragment":    {"imports = ['/etc/containerd/a.toml']\n", "a.toml"},
		"a fragment is gone":   {"imports = ['/etc/containerd/gone.toml']\n", "gone.toml"},
		"imports is no list":   {"imports = 3\n", "config.toml"},
		"a glob that is wrong": {"imports = ['/etc/[*.toml']\n", "imports"},
		"too many":             {"imports = ['/etc/containerd/*.conf']\n", "more than 64 imports"},
	} {
		files := map[string]string{containerdFile: c.main, "/etc/containerd/a.toml": "plugins = 3\n"}
		if name == "too many" {
			for i := range 70 {
				files["/etc/containerd/"+strings.Repeat("x", i+1)+".conf"] = "version = 3\n"
			}
		}
		own := readCertsD(platform.Detect(tree(t, files)), false)
		require.ErrorContains(t, own.Err(""), c.want, name)
		require.NoError(t, own.Err("/etc/containerd/certs.d"), "the running containerd says it")
		assert.False(t, own.Counts(), name)
		assert.Contains(t, own.Ignored("v2.4.2", ""), "cannot read", name)
	}
	root := tree(t, map[string]string{containerdFile: "[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/a'\n"})
	own := readCertsD(platform.Detect(root), false)
	assert.Empty(t, own.Ignored("v2.4.2", root+"/a"), "a containerd of this root")
	assert.Empty(t, own.Ignored("v2.4.2", "/a"))
	assert.Contains(t, own.Ignored("v2.4.2", "/b"), `containerd runs with config_path "/b", but its configuration has "/a"`)
}

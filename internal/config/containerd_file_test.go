// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/platform"
)

// TestImportsOfContainerd: e2e compares the same forms with `containerd config dump` of 1.6, 1.7 and 2.x
// (TestContainerdReadsItsConfigurationSo).
func TestImportsOfContainerd(t *testing.T) {
	t.Parallel()
	const (
		registry = "[plugins.'io.containerd.cri.v1.images'.registry]\n"
		here     = registry + "config_path = '/etc/containerd/certs.d'\n"
		other    = registry + "config_path = '/etc/containerd/hosts.d'\n"
		plugin   = "[plugins.'io.containerd.cri.v1.images']\nmax_concurrent_downloads = 3\n"
	)
	for name, c := range map[string]struct {
		main, fragment, path, path1 string
	}{
		"a glob":                 {"imports = ['/etc/containerd/config.d/*.toml']\n", other, "/etc/containerd/hosts.d", "/etc/containerd/hosts.d"},
		"a relative path":        {"imports = ['config.d/a.toml']\n", other, "/etc/containerd/hosts.d", "/etc/containerd/hosts.d"},
		"not imported":           {here, other, "/etc/containerd/certs.d", "/etc/containerd/certs.d"},
		"the later file wins":    {"imports = ['config.d/a.toml']\n" + here, other, "/etc/containerd/hosts.d", "/etc/containerd/hosts.d"},
		"another key of a table": {"imports = ['config.d/a.toml']\n" + here, plugin, "/etc/containerd/certs.d", ""},
		"an empty value":         {"imports = ['config.d/a.toml']\n" + here, registry + "config_path = ''\n", "/etc/containerd/certs.d", ""},
		"a circle":               {"imports = ['config.toml', 'config.d/a.toml']\n", "imports = ['../config.toml']\n" + other, "/etc/containerd/hosts.d", "/etc/containerd/hosts.d"},
		"version 1": {
			"[plugins.cri.registry]\nconfig_path = '/etc/containerd/certs.d'\n", "", "/etc/containerd/certs.d", "/etc/containerd/certs.d",
		},
	} {
		own := readCertsD(platform.Detect(tree(t, map[string]string{containerdFile: c.main, "/etc/containerd/config.d/a.toml": c.fragment})), false)
		require.NoError(t, own.err, name)
		assert.Equal(t, [2]string{c.path, c.path1}, [2]string{own.path, own.path1}, name)
		assert.Equal(t, c.path == c.path1, own.Counts(), name)
	}
}

func TestConfigurationThatCannotBeReadIsSaid(t *testing.T) {
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
		assert.Contains(t, own.Ignored("v2.4.2", ""), "cannot be read", name)
	}
	root := tree(t, map[string]string{containerdFile: "[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/a'\n"})
	own := readCertsD(platform.Detect(root), false)
	assert.Empty(t, own.Ignored("v2.4.2", root+"/a"), "a containerd of this root")
	assert.Empty(t, own.Ignored("v2.4.2", "/a"))
	assert.Contains(t, own.Ignored("v2.4.2", "/b"), `containerd runs with config_path "/b", and its configuration says "/a"`)
}

// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// TestWhyContainerdIgnoresHostsTOML: e2e/registry/config_path_test.go shows the same with real versions.
func TestWhyContainerdIgnoresHostsTOML(t *testing.T) {
	t.Parallel()
	const (
		v2      = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.registry]\n"
		v3      = "[plugins.'io.containerd.cri.v1.images'.registry]\n"
		images  = "[plugins.'io.containerd.cri.v1.images']\n"
		one     = "config_path = '/etc/containerd/certs.d'\n"
		list    = "config_path = '/a:/b'\n"
		isList  = `config_path is "/a:/b", which containerd `
		builtIn = `config_path is "/etc/containerd/certs.d:/etc/docker/certs.d", which containerd `
		none    = "the configuration of containerd has no config_path"
	)
	for name, c := range map[string]struct {
		toml, version, inUse, want string
	}{
		"one directory":                  {v3 + one, "v2.4.2", "", ""},
		"a list, 1.6":                    {v2 + list, "1.6.20~ds1", "", ""},
		"a list, 1.7":                    {v2 + list, "1.7.24", "", ""},
		"a list, 2.0":                    {v3 + list, "v2.0.14", "", ""},
		"a list, 2.1":                    {v3 + list, "v2.1.9", "", isList + "v2.1.9"},
		"a list, 2.4":                    {v3 + list, "v2.4.2", "", isList + "v2.4.2"},
		"a list, 3.0":                    {v3 + list, "v3.0.0", "", isList + "v3.0.0"},
		"a list in version 2, 2.4":       {v2 + list, "v2.4.2", "", isList},
		"not started again since":        {v3 + one, "v2.4.2", "/a:/b", isList},
		"a list, of no known version":    {v3 + list, "", "", ""},
		"a list, of a strange version":   {v3 + list, "main", "", ""},
		"pulled by the client":           {images + "use_local_image_pull = true\n" + v3 + list, "v2.4.2", "", ""},
		"layers are discarded":           {images + "discard_unpacked_layers = true\n" + v3 + list, "v2.4.2", "", ""},
		"another number of downloads":    {images + "max_concurrent_downloads = 5\n" + v3 + list, "v2.4.2", "", ""},
		"the default of downloads":       {images + "max_concurrent_downloads = 3\n" + v3 + list, "v2.4.2", "", isList},
		"annotations":                    {images + "disable_snapshot_annotations = false\n" + v3 + list, "v2.4.2", "", ""},
		"logins":                         {v3 + list + "[plugins.'io.containerd.cri.v1.images'.registry.configs.x.auth]\n", "v2.4.2", "", ""},
		"none, 1.7":                      {"version = 2\n", "1.7.24", "", none},
		"none, 2.1":                      {"version = 3\n", "v2.1.9", "", none},
		"none, 2.2":                      {"version = 3\n", "v2.2.7", "", builtIn},
		"none, 2.4, that names it":       {"version = 3\n", "v2.4.2", "/etc/containerd/certs.d:/etc/docker/certs.d", builtIn},
		"mirrors, 2.2":                   {"[plugins.'io.containerd.cri.v1.images'.registry.mirrors.x]\n", "v2.2.7", "", none},
		"1.7 runs without one":           {v2 + one, "1.7.24", NoPath, "runs without a config_path, but its configuration has"},
		"2.4 runs without one":           {v3 + one, "v2.4.2", NoPath, "runs without a config_path, but its configuration has"},
		"1.7 has none":                   {"version = 2\n", "1.7.24", NoPath, "runs without a config_path"},
		"1.7 runs with another":          {v2 + one, "1.7.24", "/b", `runs with config_path "/b"`},
		"none, and containerd is away":   {"version = 3\n", "", "", ""},
		"no configuration":               {"", "v2.2.7", "", ""},
		"no configuration, 2.4 names it": {"", "v2.4.2", "/a:/b", isList},
	} {
		files := map[string]string{containerdFile: c.toml}
		if c.toml == "" {
			files = nil
		}
		own := readCertsD(platform.Detect(tree(t, files)), false)
		got := own.Ignored(c.version, c.inUse)
		assert.Equal(t, c.want == "", got == "", "%s: %s", name, got)
		assert.Contains(t, got, c.want, name)
		assert.Equal(t, c.toml != "", own.IsKnown(), name)
	}
	own := readCertsD(platform.Detect(tree(t, map[string]string{
		containerdFile: "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n" + v3 + list, "/etc/containerd/conf.d/hosts.toml": v3 + one,
	})), false)
	assert.True(t, own.Counts(), "the last fragment wins")
}

// A certsD written by a person takes precedence over containerd's settings.
func TestWrittenCertsDTakesPrecedence(t *testing.T) {
	t.Parallel()
	files := map[string]string{containerdFile: "[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/a:/b'\n"}
	own := load(t, Sources{Root: tree(t, files)}).CertsD
	assert.False(t, own.Counts())
	assert.NotEmpty(t, own.Ignored("v2.4.2", ""))
	files[adminFile] = "containerd: {certsD: /c}\n"
	written := load(t, Sources{Root: tree(t, files)}).CertsD
	assert.True(t, written.Counts())
	assert.Empty(t, written.Ignored("v2.4.2", ""))
	assert.NotEmpty(t, written.Ignored("v2.4.2", "/a:/b"), "doctor fails")
}

func TestUnpacks(t *testing.T) {
	t.Parallel()
	const said = "[plugins.'io.containerd.transfer.v1.local']\nmax_concurrent_unpacks = "
	for name, c := range map[string]struct {
		files map[string]string
		want  int
	}{
		"no files":             {nil, 0},
		"not said":             {map[string]string{containerdFile: "version = 3\n"}, 0},
		"said":                 {map[string]string{containerdFile: said + "4\n"}, 4},
		"nothing imports it":   {map[string]string{containerdFile: said + "4\n", "/etc/containerd/conf.d/unpack.toml": said + "2\n"}, 4},
		"no configuration":     {map[string]string{"/etc/containerd/conf.d/unpack.toml": said + "2\n"}, 0},
		"the last one":         {map[string]string{containerdFile: "imports = ['conf.d/*.toml']\n" + said + "4\n", "/etc/containerd/conf.d/unpack.toml": said + "2\n"}, 2},
		"broken beside good":   {map[string]string{containerdFile: said + "4\n", "/etc/containerd/conf.d/x.toml": "["}, 4},
		"a fragment of others": {map[string]string{containerdFile: said + "4\n", "/etc/containerd/conf.d/x.toml": "version = 3\n"}, 4},
		"of another suffix":    {map[string]string{"/etc/containerd/conf.d/x.conf": said + "2\n"}, 0},
		"of another type":      {map[string]string{containerdFile: said + "'4'\n"}, 0},
	} {
		assert.Equal(t, c.want, Unpacks(platform.Detect(tree(t, c.files))), name)
	}
}

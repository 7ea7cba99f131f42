// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// registriesOfRKE2 is what k3s and RKE2 generate from `configs` in registries.yaml (pkg/agent/templates of k3s): logins
// in containerd's configuration, everything else in hosts.toml.
const registriesOfRKE2 = `
[plugins.'io.containerd.cri.v1.images'.registry.configs.'user.example'.auth]
  username = "u"
  password = "p w"

[plugins.'io.containerd.cri.v1.images'.registry.configs."auth.example:5000".auth]
  auth = "dTpwOnc="

[plugins.'io.containerd.cri.v1.images'.registry.configs.'token.example'.auth]
  identitytoken = "t"

[plugins.'io.containerd.cri.v1.images'.registry.configs.'all.example'.auth]
  username = "u"
  password = "p"
  auth = "eDp5"
  identitytoken = "t"

[plugins.'io.containerd.cri.v1.images'.registry.configs.'empty.example'.auth]

[plugins.'io.containerd.cri.v1.images'.registry.configs.'tls.example'.tls]
  ca_file = "/ca"

[plugins.'io.containerd.cri.v1.images'.registry.configs.'bad.example'.auth]
  auth = "c2VjcmV0"

[plugins.'io.containerd.cri.v1.images'.registry.configs.'worse.example'.auth]
  auth = "secret:secret"
`

func TestLoginsOfContainerd(t *testing.T) {
	t.Parallel()
	const path = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"
	files := rke2s(nil)
	p := platform.Detect(tree(t, rke2s(map[string]string{path: files[path] + registriesOfRKE2})))
	for host, want := range map[string][2]string{
		"user.example": {"u", "p w"}, "auth.example:5000": {"u", "p:w"}, "token.example": {"", "t"}, "all.example": {"u", "p"},
		"empty.example": {}, "tls.example": {}, "auth.example": {}, "other.example": {}, "": {},
	} {
		user, secret, err := ContainerdLogin(p, host, newest)
		require.NoError(t, err, host)
		assert.Equal(t, want, [2]string{user, secret}, host)
	}
	for _, host := range []string{"bad.example", "worse.example"} {
		user, secret, err := ContainerdLogin(p, host, newest)
		require.EqualError(t, err, path+": "+host+": auth is not the base64 of user:password")
		assert.Empty(t, user+secret, host)
	}
}

// An unreadable configuration may have the login.
func TestLoginsOfAnUnreadableConfiguration(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"no TOML": "password = 'secret", "a password as a key": "secret = 1\nsecret = 2\n", "an import is gone": "imports = ['/etc/gone.toml']\n"} {
		_, _, err := ContainerdLogin(platform.Detect(tree(t, map[string]string{"/etc/containerd/config.toml": text})), "a", newest)
		require.Error(t, err, name)
		assert.NotContains(t, err.Error(), "secret", name)
	}
	_, _, err := ContainerdLogin(platform.Detect(t.TempDir()), "a", newest)
	require.NoError(t, err, "there is no containerd")
}

func newest() string { return "v2.4.2" }

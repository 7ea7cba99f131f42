// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

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

// containerd 2.x merges the files of its configuration, and ignores the case of keys. In 1.x, a later file replaces the
// table of a plugin, and a key is in lower or upper case.
func TestLoginsOfEachContainerd(t *testing.T) {
	t.Parallel()
	const table = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.registry.configs."
	p := platform.Detect(tree(t, map[string]string{
		"/etc/containerd/config.toml": "imports = ['/etc/containerd/more.toml']\n" + table + "'first'.auth]\nusername = 'u'\n",
		"/etc/containerd/more.toml": table + "'last'.auth]\nusername = 'u'\n" +
			"[plugins.'io.containerd.grpc.v1.cri'.registry.configs.'upper'.AUTH]\nUSERNAME = 'u'\n" +
			"[plugins.'io.containerd.grpc.v1.cri'.registry.configs.'mixed'.Auth]\nuserName = 'u'\n",
	}))
	for host, want := range map[string]struct{ v1, v2, unknown string }{
		"first": {"", "u", "u"}, "last": {"u", "u", "u"}, "upper": {"u", "u", "u"}, "mixed": {"", "u", "u"},
	} {
		for version, user := range map[string]string{"1.7.35": want.v1, "v2.4.2": want.v2, "": want.unknown} {
			got, _, err := ContainerdLogin(p, host, func() string { return version })
			require.NoError(t, err)
			assert.Equal(t, user, got, "%s with %s", host, version)
		}
	}
	_, _, err := ContainerdLogin(p, "last", func() string { panic("every version has the same login") })
	require.NoError(t, err)
}

// The table auths, by URL or host, replaces configs. The names of the plugins depend on the version of the file.
func TestLoginsByEndpointsAndVersions(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct{ plugin, host, auth, want string }{
		"a URL":                 {"version = 3\n[plugins.'io.containerd.cri.v1.images'.", "a:5000", "https://a:5000", "u"},
		"a host":                {"version = 3\n[plugins.'io.containerd.cri.v1.images'.", "a.example", "a.example", "u"},
		"of another port":       {"version = 3\n[plugins.'io.containerd.cri.v1.images'.", "a:5000", "https://a", "config"},
		"a: is a scheme to Go":  {"version = 3\n[plugins.'io.containerd.cri.v1.images'.", "a:5000", "a:5000", "config"},
		"no URL":                {"version = 3\n[plugins.'io.containerd.cri.v1.images'.", "a", "https://a:b", "config"},
		"version 4":             {"version = 4\n[plugins.'io.containerd.cri.v1.images'.", "a.example", "a.example", "u"},
		"version 2":             {"version = 2\n[plugins.'io.containerd.grpc.v1.cri'.", "a.example", "a.example", "u"},
		"version 1, not stated": {"[plugins.cri.", "a.example", "a.example", "u"},
	} {
		p := platform.Detect(tree(t, map[string]string{
			containerdFile: c.plugin + "registry.configs.'" + c.host + "'.auth]\nusername = 'config'\n" +
				c.plugin[strings.Index(c.plugin, "["):] + "registry.auths.'" + c.auth + "']\nusername = 'u'\n",
		}))
		user, _, err := ContainerdLogin(p, c.host, newest)
		require.NoError(t, err, title)
		assert.Equal(t, c.want, user, title)
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

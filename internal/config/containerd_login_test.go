// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/platform"
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
		user, secret, err := ContainerdLogin(p, host)
		require.NoError(t, err, host)
		assert.Equal(t, want, [2]string{user, secret}, host)
	}
	for _, host := range []string{"bad.example", "worse.example"} {
		user, secret, err := ContainerdLogin(p, host)
		require.EqualError(t, err, path+": "+host+": auth is not the base64 of user:password")
		assert.Empty(t, user+secret, host)
	}
}

// The file's version determines the name of the plugin.
func TestLoginsOfEveryVersionOfContainerdsConfiguration(t *testing.T) {
	t.Parallel()
	for head, plugin := range map[string]string{"": "cri", "version = 2\n": "'io.containerd.grpc.v1.cri'"} {
		p := platform.Detect(tree(t, kubeadms(map[string]string{
			"/etc/containerd/config.toml": head + "imports = ['/etc/containerd/more.toml']\n",
			"/etc/containerd/more.toml":   head + "[plugins." + plugin + ".registry.configs.'a'.auth]\nusername = 'u'\npassword = 'p'\n",
		})))
		user, secret, err := ContainerdLogin(p, "a")
		require.NoError(t, err)
		assert.Equal(t, "u p", user+" "+secret, head)
	}
}

// An unreadable configuration may have the login.
func TestLoginsOfAnUnreadableConfiguration(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"no TOML": "password = 'secret", "an import is gone": "imports = ['/etc/gone.toml']\n"} {
		_, _, err := ContainerdLogin(platform.Detect(tree(t, kubeadms(map[string]string{"/etc/containerd/config.toml": text}))), "a")
		require.Error(t, err, name)
		assert.NotContains(t, err.Error(), "secret", name)
	}
	_, _, err := ContainerdLogin(platform.Detect(t.TempDir()), "a")
	require.NoError(t, err, "there is no containerd")
}

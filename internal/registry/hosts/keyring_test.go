// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKeyringIsReadAsKubeletReadsIt has the verdicts of k8s.io/kubernetes v1.34.4, pkg/credentialprovider: Add, URLsMatch
// and Lookup of keyring.go.
func TestKeyringIsReadAsKubeletReadsIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, host, repository string
		want                  bool
	}{
		{"registry.example.com", "registry.example.com", "team/app", true},
		{"https://registry.example.com", "registry.example.com", "team/app", true},
		{"http://registry.example.com/v1/", "registry.example.com", "team/app", true},
		{"https://registry.example.com/v2/team", "registry.example.com", "team/app", true},
		{"*.example.com", "registry.example.com", "team/app", true},
		{"*.example.com", "a.registry.example.com", "team/app", false},
		{"*.example.com", "example.com", "team/app", false},
		{"reg*.example.com", "registry.example.com", "team/app", true},
		{"registry.*.com", "registry.example.com", "team/app", true},
		{"*.*.com", "registry.example.com", "team/app", true},
		{"*.com", "registry.example.com", "team/app", false},
		{"*", "localhost", "app", true},
		{"*.example.com:5000", "registry.example.com:5000", "team/app", true},
		{"*.example.com", "registry.example.com:5000", "team/app", false},
		{"registry.example.com:443", "registry.example.com", "team/app", false},
		{"registry.example.com/team", "registry.example.com", "team/app", true},
		{"registry.example.com/te", "registry.example.com", "team/app", true},
		{"registry.example.com/other", "registry.example.com", "team/app", false},
		{"registry.example.com/team/", "registry.example.com", "team/app", true},
		{"*.example.com/team/app", "registry.example.com", "team/app", true},
		{"registry.example.com/*", "registry.example.com", "team/app", false},
		{"https://index.docker.io/v1/", "registry-1.docker.io", "library/busybox", true},
		{"docker.io", "docker.io", "library/busybox", true},
		{"index.docker.io/library", "docker.io", "library/busybox", false},
		{"regi[stry.example.com", "registry.example.com", "team/app", false},
		{"%zz", "registry.example.com", "team/app", false},
	} {
		k, err := parseKeyring(fmt.Appendf(nil, `{"auths": {%q: {"username": "u", "password": "p"}}}`, c.key))
		require.NoError(t, err, c.key)
		login, err := k.find(c.host, c.repository)
		require.NoError(t, err, c.key)
		assert.Equal(t, c.want, login == Login{User: "u", Secret: "p"}, "%s for %s/%s", c.key, c.host, c.repository)
	}
}

func TestKeyringTakesTheLongestPath(t *testing.T) {
	t.Parallel()
	k, err := parseKeyring([]byte(`{"auths": {
		"registry.example.com": {"username": "host", "password": "p"},
		"registry.example.com/team": {"username": "team", "password": "p"},
		"*.example.com": {"username": "glob", "password": "p"},
		"registry.example.com/team/app": {"auth": "bm8gY29sb24"}
	}}`))
	require.NoError(t, err)
	login, err := k.find("registry.example.com", "team/app")
	require.NoError(t, err, "an entry that cannot be used does not hide a shorter one")
	assert.Equal(t, "team", login.User)
	login, err = k.find("other.example.com", "team/app")
	require.NoError(t, err)
	assert.Equal(t, "glob", login.User)
}

func TestAuthIsReadWithAndWithoutPadding(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"u:p", "us:p", "use:p", "user:p:q"} {
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding} {
			for _, around := range []string{"%s", " %s\n"} {
				login, err := decodeAuth(fmt.Sprintf(around, encoding.EncodeToString([]byte(text))))
				require.NoError(t, err, text)
				assert.Equal(t, text, login.User+":"+login.Secret)
			}
		}
	}
	for _, bad := range []string{"", "=", "!!", "bm8gY29sb24=", base64.StdEncoding.EncodeToString([]byte("a:"))} {
		_, err := decodeAuth(bad)
		assert.ErrorIs(t, err, errNoAuth, bad)
	}
}

func TestKubeletsFilesAreSearched(t *testing.T) {
	t.Parallel()
	const dockercfg = `{"*.example.com": {"auth": "dXNlcjpzZWNyZXQtcGFzc3dvcmQ"}}`
	for _, name := range kubeletFiles {
		root := t.TempDir()
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(dockercfg), 0o600))
		c := newCredentials(t, CredentialOptions{Root: root, Getenv: func(string) string { return "" }})
		login, err := c.For("registry.example.com", "team/app")
		require.NoError(t, err, name)
		assert.Equal(t, Login{User: "user", Secret: "secret-password"}, login, name)
	}
}

func FuzzKeyring(f *testing.F) {
	f.Add([]byte(`{"auths": {"*.example.com": {"auth": "dTpw"}}}`), "registry.example.com", "app")
	f.Add([]byte(`{"https://index.docker.io/v1/": {"auth": "dTpw"}}`), "docker.io", "library/busybox")
	f.Fuzz(func(t *testing.T, data []byte, host, repository string) {
		k, err := parseKeyring(data)
		if err != nil {
			return
		}
		login, _ := k.find(host, repository)
		assert.False(t, login.Optional)
	})
}

// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKeyringIsReadAsByKubelet has the results of k8s.io/kubernetes v1.34.4, pkg/credentialprovider: Add,
// URLsMatch and Lookup of keyring.go.
func TestKeyringIsReadAsByKubelet(t *testing.T) {
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
		k, err := parseConfigJSON(fmt.Appendf(nil, `{"auths": {%q: {"username": "u", "password": "p"}}}`, c.key))
		require.NoError(t, err, c.key)
		assert.Equal(t, c.want, k.find(c.host, c.repository) == Login{User: "u", Secret: "p"}, "%s for %s/%s", c.key, c.host, c.repository)
	}
}

func TestKeyringTakesTheLongestPath(t *testing.T) {
	t.Parallel()
	k, err := parseConfigJSON([]byte(`{"auths": {
		"registry.example.com": {"username": "host", "password": "p"},
		"registry.example.com/team": {"username": "team", "password": "p"},
		"*.example.com": {"username": "glob", "password": "p"},
		"index.docker.io": {"username": "hub", "password": "p"},
		"docker.io/library": {"username": "library", "password": "p"}
	}}`))
	require.NoError(t, err)
	for image, want := range map[string]string{
		"registry.example.com/team/app": "team", "registry.example.com/app": "host", "other.example.com/team/app": "glob",
		"docker.io/library/nginx": "library", "docker.io/team/app": "hub", "quay.io/team/app": "",
	} {
		host, repository, _ := strings.Cut(image, "/")
		assert.Equal(t, want, k.find(host, repository).User, image)
	}
}

// kubelet uses only the first readable file; if one entry cannot be decoded, it uses nothing of the file
// (k8s.io/kubernetes v1.34.4, ReadDockerConfigFile; e2e/neighbours compares many more).
func TestKubeletUsesOneFile(t *testing.T) {
	t.Parallel()
	const a, b = `{"auths": {"a.io": {"auth": "dXNlci1hOnNlY3JldC1vZi1h"}}}`, `{"auths": {"b.io": {"auth": "dXNlci1iOnNlY3JldC1vZi1i"}}}`
	for name, c := range map[string]struct {
		files []string // in kubelet's order; "-": missing
		mode  os.FileMode
		want  string // hosts with a login
		err   string
	}{
		"the first":               {files: []string{a, b}, want: "a.io"},
		"the first that is there": {files: []string{"-", b}, want: "b.io"},
		"the older form":          {files: []string{"-", "-", `{"a.io": {"auth": "dXNlci1hOnNlY3JldC1vZi1h"}}`}, want: "a.io"},
		"config.json in the older form has no login": {files: []string{`{"a.io": {"auth": "dXNlci1hOnNlY3JldC1vZi1h"}}`, b}},
		"an empty one":            {files: []string{"{}", b}},
		"no JSON":                 {files: []string{"{", b}, want: "b.io", err: "not JSON with auths"},
		"one bad entry":           {files: []string{`{"auths": {"a.io": {"auth": "dXNlci1hOnNlY3JldC1vZi1h"}, "c.io": {"auth": "YQ=="}}}`, b}, want: "b.io", err: "kubelet ignores the file: c.io"},
		"base64 of another kind":  {files: []string{`{"auths": {"a.io": {"auth": "YTo_Pz8-Pj4="}}}`}, err: "a.io: auth is not the base64"},
		"an entry that is a text": {files: []string{`{"auths": {"a.io": "x"}}`}, err: "not JSON with auths"},
		"written by others":       {files: []string{a, b}, mode: 0o666, err: "others may write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for n, text := range c.files {
				path := filepath.Join(root, kubeletFiles[n])
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				if text != "-" {
					require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
				}
				if n == 0 && c.mode != 0 {
					require.NoError(t, os.Chmod(path, c.mode))
				}
			}
			logins := newCredentials(t, CredentialOptions{Root: root, Getenv: func(string) string { return "" }})
			var with []string
			for _, host := range []string{"a.io", "b.io", "c.io"} {
				login, err := logins.For(host, "app")
				if login != (Login{}) {
					with = append(with, host)
				} else if c.err != "" {
					require.ErrorContains(t, err, c.err)
				}
			}
			assert.Equal(t, c.want, strings.Join(with, " "))
		})
	}
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
	const entry = `{"*.example.com": {"auth": "dXNlcjpzZWNyZXQtcGFzc3dvcmQ"}}`
	for _, name := range kubeletFiles {
		root, text := t.TempDir(), entry
		if filepath.Base(name) == "config.json" {
			text = `{"auths": ` + entry + "}"
		}
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
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
		for _, parse := range []func([]byte) (keyring, error){parseConfigJSON, parseDockercfg} {
			if k, err := parse(data); err == nil {
				assert.False(t, k.find(host, repository).Optional)
			}
		}
	})
}

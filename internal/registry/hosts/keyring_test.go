// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

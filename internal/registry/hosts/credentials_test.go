// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const sccPath = "etc/zypp/credentials.d/SCCcredentials"

// Each place overrides all places below it.
func TestCredentialsInTheirOrder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	places := []string{
		"/etc/own.json", "/etc/from-environment.json", "/run/credentials/x/" + SystemdCredential, "/run/containers/0/auth.json",
		"/root/.config/containers/auth.json", "/root/.docker/config.json", "/var/lib/kubelet/config.json",
	}
	c := newCredentials(t, CredentialOptions{Root: root, File: filepath.Join(root, places[0]), Getenv: environ(
		"REGISTRY_AUTH_FILE", places[1], "CREDENTIALS_DIRECTORY", "/run/credentials/x")})
	login, err := c.For(sccHost, "app")
	require.NoError(t, err)
	assert.Equal(t, Login{}, login, "no file at all is no problem")

	put(t, root, sccPath, "username=SCC_1\npassword="+secret+"\n")
	login, err = c.For(sccHost, "app")
	require.NoError(t, err)
	assert.Equal(t, Login{User: "SCC_1", Secret: secret, Optional: true}, login)
	for _, place := range slices.Backward(places) {
		put(t, root, place, authJSONOf(sccHost, place))
		login, err = c.For(sccHost, "app")
		require.NoError(t, err)
		assert.Equal(t, Login{User: place, Secret: secret}, login, "a new file is seen at once")
	}
	require.NoError(t, os.Remove(filepath.Join(root, places[0])))
	login, err = c.For(sccHost, "app")
	require.NoError(t, err)
	assert.Equal(t, places[1], login.User, "and so is one that went")
	put(t, root, places[1], authJSONOf(sccHost, "changed"))
	login, err = c.For(sccHost, "app")
	require.NoError(t, err)
	assert.Equal(t, "changed", login.User)
}

// containerd uses its own logins if kubelet has none.
func TestContainerdsLoginsCountAfterKubelets(t *testing.T) {
	t.Parallel()
	root, log := t.TempDir(), &bytes.Buffer{}
	var problem error
	c := newCredentials(t, CredentialOptions{
		Root: root, Getenv: environ(), Log: slog.New(slog.NewTextHandler(log, nil)),
		Containerd: func(host string) (Login, error) {
			if host == sccHost && problem == nil {
				return Login{User: "containerd", Secret: secret}, nil
			}
			return Login{}, problem
		},
	})
	put(t, root, sccPath, "username=SCC_1\npassword="+secret+"\n")
	for _, want := range []string{"containerd", "/var/lib/kubelet/config.json"} {
		login, err := c.For(sccHost, "app")
		require.NoError(t, err)
		assert.Equal(t, want, login.User)
		put(t, root, "/var/lib/kubelet/config.json", authJSONOf(sccHost, "/var/lib/kubelet/config.json"))
	}
	problem = errors.New("config.toml: gone")
	for range 2 {
		for _, host := range []string{"a", "b"} {
			login, err := c.For(host, "app")
			require.ErrorContains(t, err, "config.toml: gone")
			assert.Empty(t, login)
		}
	}
	assert.Equal(t, 2, strings.Count(log.String(), "config.toml: gone"), "once for each host: %s", log)
}

func TestSCCLoginIsForItsHostOnly(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, sccPath, "username=SCC_1\npassword="+secret+"\n")
	c := newCredentials(t, CredentialOptions{Root: root, Getenv: environ()})
	for _, host := range []string{
		"mirror:5000", "registry.suse.com:5000", "registry.suse.de", "registry.suse.com.evil.org", "scc.suse.com", "docker.io",
	} {
		login, err := c.For(host, "registry.suse.com/app")
		require.NoError(t, err)
		assert.Equal(t, Login{}, login, host)
	}
}

func TestLongestKeyWins(t *testing.T) {
	t.Parallel()
	file, err := parseAuthFile([]byte(authJSONOf(
		"reg:5000", "host", "reg:5000/caasp", "namespace", "reg:5000/caasp/v4/velum", "repository",
		"https://index.docker.io/v1/", "hub", "docker.io/sles12", "hub-namespace",
		"https://Old.example.org/v2/", "url", "http://plain.example.org", "plain", "same", "exact", "https://same", "rewritten",
	)))
	require.NoError(t, err)
	lookups := []struct{ host, repository, user string }{
		{"reg:5000", "app", "host"},
		{"reg:5000", "caasp", "namespace"},
		{"reg:5000", "caasp/v4/salt", "namespace"},
		{"reg:5000", "caasp/v4/velum", "repository"},
		{"reg:5000", "caasp/v4/velum/deeper", "repository"},
		{"reg:5000", "caasp/v4/velum2", "namespace"},
		{"reg:5000", "caasp2", "host"},
		{"reg:5000", "", "host"},
		{"reg", "caasp", ""},
		{"reg:5001", "caasp", ""},
		{"registry-1.docker.io", "library/app", "hub"},
		{"index.docker.io", "library/app", "hub"},
		{"registry-1.docker.io", "sles12/velum", "hub-namespace"},
		{"auth.docker.io", "sles12/velum", ""},
		{"old.example.org", "app", "url"},
		{"OLD.example.org", "app", "url"},
		{"plain.example.org", "app", "plain"},
		{"same", "app", "exact"},
		{"", "", ""},
	}
	for _, l := range lookups {
		login, err := file.find(l.host, l.repository)
		require.NoError(t, err)
		assert.Equal(t, l.user, login.User, "%s %s", l.host, l.repository)
	}
}

// Entries of an auth.json for the repository reg/app.
func TestAuthFileEntries(t *testing.T) {
	t.Parallel()
	entries := []struct {
		title, json string
		want        Login
		problem     error
	}{
		{"auth", `{"auths":{"reg":{"auth":"` + encodedAuth("u", "a:b") + `"}}}`, Login{User: "u", Secret: "a:b"}, nil},
		{"zeros", `{"auths":{"reg":{"auth":"` + encodedAuth("u", "p\x00\x00") + `"}}}`, Login{User: "u", Secret: "p"}, nil},
		{"user and password", `{"auths":{"reg":{"username":"u","password":"p"}}}`, Login{User: "u", Secret: "p"}, nil},
		{"identity token", `{"auths":{"reg":{"auth":"` + encodedAuth("u", "p") + `","identitytoken":"t"}}}`, Login{Secret: "t"}, nil},
		{"other keys", `{"auths":{"reg":{"auth":"` + encodedAuth("u", "p") + `","email":"x"}},"HttpHeaders":{"a":"b"}}`, Login{User: "u", Secret: "p"}, nil},
		{"empty", `{}`, Login{}, nil},
		{"logged out", `{"auths":{"reg":{}}}`, Login{}, nil},
		{"no colon", `{"auths":{"reg":{"auth":"` + base64.StdEncoding.EncodeToString([]byte(secret)) + `"}}}`, Login{}, errNoAuth},
		{"no password", `{"auths":{"reg":{"auth":"` + encodedAuth("u", "") + `"}}}`, Login{}, errNoAuth},
		{"not base64", `{"auths":{"reg":{"auth":"` + secret + `"}}}`, Login{}, errNoAuth},
		{"store", `{"auths":{"reg":{}},"credsStore":"pass"}`, Login{}, errHelper},
		{"helper", `{"credHelpers":{"reg":"pass"}}`, Login{}, errHelper},
		{"helper for another", `{"credHelpers":{"other":"pass"}}`, Login{}, nil},
		{"broken, and one above it", `{"auths":{"reg/app":{"auth":"!"},"reg":{"username":"u","password":"p"}}}`, Login{User: "u", Secret: "p"}, nil},
	}
	for _, e := range entries {
		t.Run(e.title, func(t *testing.T) {
			t.Parallel()
			file, err := parseAuthFile([]byte(e.json))
			require.NoError(t, err)
			login, err := file.find("reg", "app")
			assert.Equal(t, e.want, login)
			if e.problem == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, e.problem.Error())
			assert.NotContains(t, err.Error(), secret)
		})
	}
}

// An unusable file is logged once, hides no other, and its content is in no error.
func TestCredentialFilesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	faults := []struct {
		title, want string
		spoil       func(t *testing.T, path string)
	}{
		{"no JSON", "not JSON with auths", func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, []byte(`{"auths": `+secret), 0o600))
		}},
		{"a number", "not JSON with auths", func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, []byte(`{"auths":{"reg":{"auth":9999999999999999999999}}}`), 0o600))
		}},
		{"others may write", "others may write", func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, []byte(authJSONOf("reg", "u")), 0o600))
			require.NoError(t, os.Chmod(path, 0o622))
		}},
		{"a directory", "not a regular file", func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) }},
		{"a FIFO", "not a regular file", func(t *testing.T, path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }},
	}
	for _, f := range faults {
		t.Run(f.title, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			logged := new(bytes.Buffer)
			f.spoil(t, filepath.Join(root, "own.json"))
			c := newCredentials(t, CredentialOptions{Root: root, File: filepath.Join(root, "own.json"), Getenv: environ(), Log: slog.New(slog.NewTextHandler(logged, nil))})
			for range 3 {
				login, err := c.For("reg", "app")
				require.ErrorContains(t, err, f.want)
				assert.Equal(t, Login{}, login)
				assert.NotContains(t, err.Error(), secret)
				assert.NotContains(t, err.Error(), "\n")
			}
			assert.Equal(t, 1, strings.Count(logged.String(), "cannot use credentials"), logged.String())
			assert.NotContains(t, logged.String(), secret)

			put(t, root, "root/.docker/config.json", authJSONOf("reg", "u"))
			login, err := c.For("reg", "app")
			require.NoError(t, err)
			assert.Equal(t, "u", login.User)
		})
	}
}

// A user who could write a file could add a password that is sent to that user's host.
func TestOwnersOfCredentials(t *testing.T) {
	t.Parallel()
	require.Zero(t, os.Geteuid(), "files are given to others")
	for path, content := range map[string]string{
		"root/.docker/config.json": authJSONOf(sccHost, "u"), sccPath: "username=u\npassword=" + secret + "\n",
	} {
		root := t.TempDir()
		put(t, root, path, content)
		c := newCredentials(t, CredentialOptions{Root: root, Getenv: environ()})
		for _, is := range []struct {
			mode fs.FileMode
			uid  int
			want string // empty if it is used
		}{
			{0o600, 0, ""},
			{0o644, 0, ""},
			{0o620, 0, "mode 0620: others may write"},
			{0o602, 0, "mode 0602: others may write"},
			{0o600, 4711, "owned by user 4711, want root"},
			{0o440, 0, ""},
		} {
			require.NoError(t, os.Chmod(filepath.Join(root, path), is.mode))
			require.NoError(t, os.Chown(filepath.Join(root, path), is.uid, 0))
			login, err := c.For(sccHost, "app")
			if is.want == "" {
				require.NoError(t, err)
				assert.Equal(t, "u", login.User)
				continue
			}
			require.ErrorContains(t, err, is.want)
			assert.Equal(t, Login{}, login)
		}
	}
}

func TestSCCFile(t *testing.T) {
	t.Parallel()
	login, err := parseSCC([]byte("# registered\nusername = SCC_1\r\npassword=a=b\n"))
	require.NoError(t, err)
	assert.Equal(t, Login{User: "SCC_1", Secret: "a=b", Optional: true}, login)
	for _, bad := range []string{"", "username=x\n", "password=" + secret, "username=\npassword=" + secret} {
		_, err := parseSCC([]byte(bad))
		require.ErrorIs(t, err, errNoSCC)
	}
}

func FuzzAuthFile(f *testing.F) {
	f.Add([]byte(authJSONOf("reg", "u", "reg/app", "v", "https://index.docker.io/v1/", "w")), "reg", "app")
	f.Add([]byte(`{"auths":{"/":{"auth":"Og=="}},"credHelpers":{"":""}}`), "", "")
	f.Fuzz(func(t *testing.T, data []byte, host, repository string) {
		file, err := parseAuthFile(data)
		if err != nil {
			return
		}
		login, _ := file.find(host, repository)
		assert.False(t, login.Optional)
		if login != (Login{}) {
			assert.NotEmpty(t, login.Secret)
		}
		for key := range file {
			assert.Equal(t, key, authKey(key), "keys are normal")
		}
	})
}

func FuzzSCC(f *testing.F) {
	f.Add([]byte("username=SCC_1\npassword=x\n"))
	f.Add([]byte(" username = a=b \r\npassword=\npassword=p"))
	f.Fuzz(func(t *testing.T, data []byte) {
		login, err := parseSCC(data)
		if err != nil {
			require.ErrorIs(t, err, errNoSCC)
			assert.Zero(t, login)
			return
		}
		assert.True(t, login.Optional)
		for _, part := range []string{login.User, login.Secret} {
			assert.NotEmpty(t, part)
			assert.NotContains(t, part, "\n")
			assert.Equal(t, strings.TrimSpace(part), part)
			assert.Contains(t, string(data), part)
		}
	})
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

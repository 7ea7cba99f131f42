// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/config"
)

// containerdLogins is the number of configurations that each version reads.
const containerdLogins = 500

// loginHosts are the hosts of the tables. Their logins are compared, and those of hosts without a table.
var loginHosts = []string{
	"registry.example.com", "Registry.Example.com", "registry.example.com:5000", "registry-1.docker.io", "docker.io", "quay.io", "10.0.0.1:5000",
	"10.0.0.1", "[::1]:5000", "localhost:5000", "registry", "user@other.example", "*",
}

// TestLoginsAreThoseOfContainerd checks that the agent takes the login of a host from containerd's configuration that
// containerd sends to this host. It skips a configuration with which containerd does not start.
func TestLoginsAreThoseOfContainerd(t *testing.T) {
	t.Parallel()
	for part, version := range containerds {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			rounds, r := inputs(t, containerdLogins)
			c, top := startContainerd(t, "logins", part), t.TempDir()
			asked := append([]string{"other.example", "example.com"}, loginHosts...)
			refused, unread, seen := 0, 0, map[string]int{}
			for n := range rounds {
				root, files := filepath.Join(top, fmt.Sprint(n)), newContainerdLoginFiles(r, version).all()
				for name, text := range files {
					put(t, filepath.Join(root, name), text)
				}
				theirs := c.ask(containerdAsked{Root: root, Logins: asked}, input{dirs: []string{root}})
				if theirs.Err != "" {
					refused++
					continue
				}
				ours, err := config.Load(config.Sources{Root: root})
				require.NoError(t, err)
				if problem := ours.CertsD.Err(""); problem != nil {
					unread++
					assert.True(t, onPurposeUnread(version, problem.Error()), "%v\n%s", problem, shown(files))
					continue
				}
				for _, host := range asked {
					want := theirs.Config.Logins[host]
					user, secret, err := config.ContainerdLogin(ours.Platform, host, func() string { return version })
					about := fmt.Sprintf("%d: %s: %s", n, host, shown(files))
					assert.Equal(t, want.Err == "", err == nil, "%v, %v: %s", want.Err, err, about)
					assert.Equal(t, [2]string{string(want.User), string(want.Secret)}, [2]string{user, secret}, about)
					seen[want.kind()]++
				}
				if t.Failed() && !testing.Verbose() {
					return
				}
			}
			t.Logf("refused: %d, not read on purpose: %d, read: %v", refused, unread, seen)
			assert.Less(t, refused+unread, rounds/2, "enough are read")
			for _, kind := range []string{"none", "user", "token", "error"} {
				assert.Greater(t, seen[kind], rounds/20, kind)
			}
		})
	}
}

// kind returns what the login is, for statistics.
func (l containerdLogin) kind() string {
	switch {
	case l.Err != "":
		return "error"
	case len(l.User) > 0:
		return "user"
	case len(l.Secret) > 0:
		return "token"
	default:
		return "none"
	}
}

// containerdLoginFiles generates configurations with logins as k3s, packages and people write them, also with mistakes.
type containerdLoginFiles struct {
	r  *rand.Rand
	v1 bool // for containerd 1.x
	// before and after a host in auths: containerd uses a random one of several spellings of a host
	before, after string
	spellings     map[string]string // of keys, where they are odd
}

func newContainerdLoginFiles(r *rand.Rand, version string) containerdLoginFiles {
	f := containerdLoginFiles{
		r, strings.HasPrefix(version, "1."),
		oneOf(r, "https://", "https://", "http://", "//", "", "ftp://"), oneOf(r, "", "", "/", "/v1/", "/team"),
		map[string]string{},
	}
	for _, key := range []string{"registry", "configs", "auths", "auth", "username", "password", "identitytoken"} {
		if f.isRare(25) {
			f.spellings[key] = f.one(strings.ToUpper(key), strings.ToUpper(key[:1])+key[1:], key[:1]+strings.ToUpper(key[1:]))
		}
	}
	return f
}

func (f containerdLoginFiles) one(of ...string) string { return oneOf(f.r, of...) }

func (f containerdLoginFiles) isRare(times int) bool { return f.r.IntN(times) == 0 }

// all returns a main file and the files that it imports, by their names below the root.
func (f containerdLoginFiles) all() map[string]string {
	version := f.one("", "1", "2", "2", "3", "3", "4")
	if f.v1 {
		version = f.one("", "1", "2", "2")
	}
	const main, a, b = "etc/containerd/config.toml", "etc/containerd/conf.d/a.toml", "etc/containerd/conf.d/b.toml"
	switch f.r.IntN(4) {
	case 0:
		return map[string]string{
			main: f.text(version, "imports = ['/etc/containerd/conf.d/*.toml']\n"), a: f.text(version, ""), b: f.text(version, ""),
		}
	case 1:
		return map[string]string{main: f.text(version, "imports = ['conf.d/a.toml']\n"), a: f.text(version, "")}
	default:
		return map[string]string{main: f.text(version, "")}
	}
}

// text returns a file.
func (f containerdLoginFiles) text(version, head string) string {
	plugin := map[string]string{"": "cri", "1": "cri", "2": "'io.containerd.grpc.v1.cri'"}[version]
	if plugin == "" {
		plugin = "'io.containerd.cri.v1.images'"
	}
	if f.isRare(12) {
		plugin = f.one("cri", "'io.containerd.grpc.v1.cri'", "'io.containerd.cri.v1.images'")
	}
	if version != "" {
		head = "version = " + version + "\n" + head
	}
	registry := "plugins." + plugin + "." + f.spelled("registry")
	text := head
	if f.isRare(2) {
		text += "[" + registry + "]\nconfig_path = '/etc/containerd/certs.d'\n"
	}
	hosts := f.r.Perm(len(loginHosts))
	for n := range f.r.IntN(6) {
		text += f.entry(registry, loginHosts[hosts[n]])
	}
	return text
}

// entry returns the table of a host.
func (f containerdLoginFiles) entry(registry, host string) string {
	quoted := f.one("'"+host+"'", `"`+host+`"`)
	configs := registry + "." + f.spelled("configs") + "." + quoted
	switch f.r.IntN(12) {
	case 0:
		return "[" + configs + "]\n" + f.spelled("auth") + " = { " + strings.Join(f.auth(), ", ") + " }\n"
	case 1:
		return "[" + configs + "." + f.one("tls]\ninsecure_skip_verify = true\n", "other]\n")
	case 2, 3:
		return f.auths(registry, host)
	case 4:
		if strings.Contains(host, "[") || f.isRare(2) {
			return ""
		}
		return "[" + configs + "." + f.spelled("auth") + "]\n" + f.lines() + f.auths(registry, host)
	default:
		return "[" + configs + "." + f.spelled("auth") + "]\n" + f.lines()
	}
}

// auths returns the older table of an endpoint.
func (f containerdLoginFiles) auths(registry, host string) string {
	key := f.before + host + f.after
	if f.isRare(60) {
		key = f.one("%zz", "https://a b", "://x", ":5000")
	}
	return "[" + registry + "." + f.spelled("auths") + ".'" + key + "']\n" + f.lines()
}

func (f containerdLoginFiles) lines() string { return strings.Join(f.auth(), "\n") + "\n" }

// auth returns the keys of a login.
func (f containerdLoginFiles) auth() []string {
	n := f.r.IntN(1000)
	user, password, token := fmt.Sprint("user", n), fmt.Sprint("p:w ", n), fmt.Sprint("token", n)
	lines := map[string]string{
		"username": f.spelled("username") + " = '" + user + "'", "password": f.spelled("password") + " = '" + password + "'",
		"identitytoken": f.spelled("identitytoken") + " = '" + token + "'", "auth": f.spelled("auth") + " = " + f.base64(user+":"+password),
		"serveraddress": "serveraddress = 'https://other.example'", "nul": `password = "\u0000nul\u0000"`,
		"empty": "username = ''", "number": "username = 3", "registrytoken": "registrytoken = 'r'",
	}
	keys := [][]string{
		{"username", "password"},
		{"username", "password"},
		{"identitytoken"},
		{"auth"},
		{"auth"},
		{"auth"},
		{"auth"},
		{"username"},
		{"password"},
		{"username", "password", "auth"},
		{"identitytoken", "auth"},
		{"username", "identitytoken"},
		{"username", "password", "auth", "identitytoken"},
		{"password", "identitytoken"},
		{"auth", "password"},
		{"username", "password", "serveraddress"},
		{"auth", "serveraddress"},
		{"username", "nul"},
		{"empty", "auth"},
		{"empty", "password"},
		{"registrytoken"},
		{},
	}[f.r.IntN(22)]
	if f.isRare(80) {
		keys = []string{"number"}
	}
	var all []string
	for _, key := range keys {
		all = append(all, lines[key])
	}
	return all
}

// base64 returns the value of auth, sometimes with a mistake.
func (f containerdLoginFiles) base64(pair string) string {
	encode := base64.StdEncoding.EncodeToString
	if f.isRare(2) {
		return "'" + encode([]byte(pair)) + "'"
	}
	switch f.r.IntN(10) {
	case 0:
		return "'" + base64.RawStdEncoding.EncodeToString([]byte(pair+"x")) + "'"
	case 1:
		return "'" + base64.URLEncoding.EncodeToString([]byte("u:???>>>")) + "'"
	case 2:
		return f.one("''", "'x'", "'='", "' dTpw'", "'dTpw='", "'dTpw===='", "'dTpw '", "'dTp!'", "'secret:secret'")
	case 3:
		return "'" + encode([]byte("no-colon")) + "'"
	case 4:
		return "'" + encode([]byte(f.one(":", ":token", "user:", "::", "a:b:c", "\x00:\x00", "user\x00:pass", " u : p "))) + "'"
	case 5:
		return "'" + encode([]byte("u:\x00pass\x00word\x00\x00")) + "'"
	case 6:
		return "'" + encode([]byte("u:\xff\xfe")) + "'"
	case 7:
		text := encode([]byte(pair))
		return "\"\"\"" + text[:4] + "\n" + text[4:] + "\n\"\"\""
	case 8:
		return `"` + encode([]byte(pair)) + f.one(`\r\n"`, `\n"`, `\t"`, `\u0000"`)
	default:
		return "'" + encode([]byte(pair+"\n")) + "'"
	}
}

// spelled returns a key in the spelling of all files.
func (f containerdLoginFiles) spelled(key string) string { return cmp.Or(f.spellings[key], key) }

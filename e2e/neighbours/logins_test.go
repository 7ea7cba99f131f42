// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// loginFile generates a config.json or a .dockercfg as docker, podman and people write them, also with mistakes.
type loginFile struct{ r *rand.Rand }

func (f loginFile) one(of ...string) string { return of[f.r.IntN(len(of))] }

var loginKeys = []string{
	"registry.example.com", "https://registry.example.com", "http://registry.example.com/", "registry.example.com/v2/", "https://registry.example.com/v1/",
	"registry.example.com/team", "registry.example.com/team/", "registry.example.com/team/app", "registry.example.com/te", "registry.example.com:5000", "*.example.com",
	"*.example.com:5000", "*.*.com", "*", "*.com", "reg*.example.com", "registry.*.com/team", "[r]egistry.example.com", "registry.example.com/*", "Registry.Example.com",
	"https://index.docker.io/v1/", "index.docker.io", "docker.io", "https://docker.io", "docker.io/library", "quay.io", "https://quay.io/v2/team", "registry.example.com/v2/team",
	"ftp://quay.io", "quay.io?x=1", "", "https://", "%zz", "registry.example.com//team", "10.0.0.1", "10.0.0.1:5000", "[::1]:5000", "localhost",
}

var loginImages = []string{
	"registry.example.com/team/app", "registry.example.com/team", "registry.example.com/other/app", "registry.example.com:5000/team/app", "quay.io/team/app",
	"docker.io/library/nginx", "docker.io/team/app", "10.0.0.1/a", "10.0.0.1:5000/a", "a.b.com/c", "localhost/a", "localhost:5000/a", "registry.example.com/v2/team",
}

func (f loginFile) entry(n int) any {
	user, password := fmt.Sprint("u", n), fmt.Sprint("p", n)
	pair := []byte(user + ":" + password)
	switch f.r.IntN(16) {
	case 0:
		return map[string]any{"username": user, "password": password}
	case 1:
		return map[string]any{"username": user, "password": password, "auth": base64.StdEncoding.EncodeToString([]byte("x:y"))}
	case 2:
		return map[string]any{"auth": base64.RawStdEncoding.EncodeToString(pair)}
	case 3:
		return map[string]any{"auth": base64.URLEncoding.EncodeToString([]byte(user + ":???>>>"))}
	case 4:
		return map[string]any{"auth": f.one("", "x", "=", "dTpw\n", " dTpw", "dTpw=", "dXA=", "dTpw====")}
	case 5:
		return map[string]any{}
	case 6:
		return map[string]any{"auth": base64.StdEncoding.EncodeToString(pair), "identitytoken": "t"}
	case 7:
		return map[string]any{"Auth": base64.StdEncoding.EncodeToString(pair), "Email": "a@b"}
	case 8:
		return []any{nil, "text", 5, []any{}}[f.r.IntN(4)]
	case 9:
		return map[string]any{"auth": base64.StdEncoding.EncodeToString([]byte(user + ":" + password + ":more"))}
	default:
		return map[string]any{"auth": base64.StdEncoding.EncodeToString(pair)}
	}
}

func (f loginFile) text(name string, n int) string {
	auths, seen := map[string]any{}, map[string]bool{}
	for i := range 1 + f.r.IntN(4) {
		// Of two spellings of a key, kubelet uses a random one.
		key := loginKeys[f.r.IntN(len(loginKeys))]
		bare := regexp.MustCompile(`^https?://|\?.*`).ReplaceAllString(key, "")
		bare = strings.TrimSuffix(regexp.MustCompile(`/v[12]/`).ReplaceAllString(bare, "/"), "/")
		if !seen[bare] {
			auths[key], seen[bare] = f.entry(n*10+i), true
		}
	}
	var file any = map[string]any{"auths": auths}
	if name == ".dockercfg" != (f.r.IntN(10) == 0) {
		file = auths
	}
	data, _ := json.Marshal(file)
	text := string(data)
	switch f.r.IntN(15) {
	case 0:
		return text[:len(text)-1]
	case 1:
		return text + f.one("{}", "\n", "x")
	case 2:
		return f.one("", "{}", "null", "[]", `{"auths": null}`, `{"credsStore": "x"}`, "\ufeff"+text)
	case 3:
		return strings.Replace(text, `"auths"`, f.one(`"Auths"`, `"AUTHS"`, `"auth"`), 1)
	}
	return text
}

// TestLoginsAreThoseOfKubelet checks that the agent takes the login from kubelet's files that kubelet tries first for
// an image, and has none if kubelet has none.
func TestLoginsAreThoseOfKubelet(t *testing.T) {
	t.Parallel()
	k := startKubelet(t, "kubelet-logins")
	rounds, r := inputs(t, 1500)
	f := loginFile{r}
	top := t.TempDir()
	with := 0
	for n := range rounds {
		dirs := []string{filepath.Join(top, fmt.Sprint(n), "a"), filepath.Join(top, fmt.Sprint(n), "b")}
		var paths, texts []string
		for _, name := range []string{"config.json", ".dockercfg"} {
			for i, dir := range dirs {
				require.NoError(t, os.MkdirAll(dir, 0o755))
				path := filepath.Join(dir, name)
				paths = append(paths, path)
				if f.r.IntN(2) == 0 {
					text := f.text(name, n*4+i)
					texts = append(texts, path+": "+text)
					require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
				}
			}
		}
		says := k.ask(map[string]any{"logins": dirs, "images": loginImages}, dirs...)
		agents := hosts.NewCredentials(hosts.CredentialOptions{Root: "/", Kubelet: paths, Getenv: func(string) string { return "" }})
		for i, image := range loginImages {
			want := kubeletsFirst(says.Logins[i])
			host, repository, _ := strings.Cut(image, "/")
			if !strings.Contains(host, ".") && !strings.Contains(host, ":") {
				continue // intentional: kubelet sends the login of Docker Hub to localhost
			}
			got, err := agents.For(host, repository)
			if want != (hosts.Login{}) {
				with++
			}
			assert.Equal(t, want, got, "%s: %v\n%s", image, err, strings.Join(texts, "\n"))
		}
	}
	assert.Greater(t, with, 500)
	t.Logf("%d questions, %d logins", 1500*len(loginImages), with)
}

// kubeletsFirst returns the first login with a user. The agent intentionally skips logins without a user, which kubelet
// tries as anonymous.
func kubeletsFirst(all []kubeletLogin) hosts.Login {
	for _, l := range all {
		if l.User != "" {
			return hosts.Login{User: l.User, Secret: l.Password}
		}
	}
	return hosts.Login{}
}

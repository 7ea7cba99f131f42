// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// keyring has the logins of a file that kubelet reads, by kubelet's rules (k8s.io/kubernetes/pkg/credentialprovider,
// keyring.go): a key is a host, in which * matches part of one name between dots, and a path prefix. All matching keys
// are used, in reverse order of their text.
type keyring []keyringEntry

type keyringEntry struct {
	key   string // host and path, without scheme
	at    *url.URL
	login Login
}

// dockerHub is docker's and kubelet's key for Docker Hub.
const dockerHub = "index.docker.io"

// find returns the first login with a matching key, for Docker Hub also with its old key if no other matches. It skips
// a login without a user: kubelet asks anonymously with it, and then with the next. The zero Login means that there is
// none.
func (k keyring) find(host, repository string) Login {
	image, err := url.Parse("https://" + imageHost(host) + "/" + repository)
	if err != nil {
		return Login{} // a name that is not a URL has no login in this file
	}
	var found, hub []Login
	for _, e := range k {
		switch {
		case matches(e.at, image):
			found = append(found, e.login)
		case e.key == dockerHub && image.Host == "docker.io":
			hub = append(hub, e.login)
		}
	}
	if len(found) == 0 {
		found = hub
	}
	if at := slices.IndexFunc(found, func(l Login) bool { return l.User != "" }); at >= 0 {
		return found[at]
	}
	return Login{}
}

// imageHost returns the host in the name of an image.
func imageHost(host string) string {
	switch host = strings.ToLower(host); host {
	case dockerHub, "registry-1.docker.io":
		return "docker.io"
	default:
		return host
	}
}

// matches is kubelet's URLsMatch.
func matches(glob, image *url.URL) bool {
	globParts, globPort := splitHost(glob)
	parts, port := splitHost(image)
	if globPort != port || len(globParts) != len(parts) || !strings.HasPrefix(image.Path, glob.Path) {
		return false
	}
	for i, part := range globParts {
		if is, err := filepath.Match(part, parts[i]); err != nil || !is {
			return false
		}
	}
	return true
}

func splitHost(u *url.URL) (parts []string, port string) {
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		host, port = u.Host, ""
	}
	return strings.Split(host, "."), port
}

// keyringLogin is an entry of a file, with the fields that kubelet decodes. If one field has a wrong type, or one auth
// is invalid, kubelet uses nothing of the file (credentialprovider, config.go).
type keyringLogin struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Email    string `json:"email"`
	Auth     string `json:"auth"`
}

// parseConfigJSON parses docker's config.json as kubelet does.
func parseConfigJSON(data []byte) (keyring, error) {
	var file struct {
		Auths   map[string]keyringLogin `json:"auths"`
		Headers map[string]string       `json:"HttpHeaders"`
	}
	if json.Unmarshal(data, &file) != nil {
		return nil, errNoAuthFile
	}
	return newKeyring(file.Auths)
}

// parseDockercfg parses the older .dockercfg as kubelet does: only the map.
func parseDockercfg(data []byte) (keyring, error) {
	var entries map[string]keyringLogin
	if json.Unmarshal(data, &entries) != nil {
		return nil, errNoAuthFile
	}
	return newKeyring(entries)
}

// newKeyring returns a non-nil keyring or an error.
func newKeyring(entries map[string]keyringLogin) (keyring, error) {
	k := keyring{}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		login, err := entries[name].login()
		if err != nil {
			return nil, fmt.Errorf("kubelet ignores the file: %s: %w", outside.Text(name), err)
		}
		if key, at, ok := keyringKey(name); ok {
			k = append(k, keyringEntry{key: key, at: at, login: login})
		}
	}
	slices.SortStableFunc(k, func(a, b keyringEntry) int { return strings.Compare(b.key, a.key) })
	return k, nil
}

// login decodes auth, which takes precedence over user and password, as in kubelet (decodeDockerConfigFieldAuth).
func (l keyringLogin) login() (Login, error) {
	if l.Auth == "" {
		return Login{User: l.Username, Secret: l.Password}, nil
	}
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(strings.TrimSpace(l.Auth), "=") {
		encoding = base64.StdEncoding
	}
	pair, err := encoding.DecodeString(l.Auth)
	user, secret, ok := strings.Cut(string(pair), ":")
	if err != nil || !ok {
		return Login{}, errNoAuth
	}
	return Login{User: user, Secret: secret}, nil
}

// keyringKey returns kubelet's form of a key: without scheme, and without the version of an API before a path.
func keyringKey(name string) (key string, at *url.URL, ok bool) {
	if !strings.HasPrefix(name, "https://") && !strings.HasPrefix(name, "http://") {
		name = "https://" + name
	}
	u, err := url.Parse(name)
	if err != nil {
		return "", nil, false
	}
	path := u.Path
	if strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/v2/") {
		path = path[len("/v1"):]
	}
	if path == "/" {
		path = ""
	}
	key = u.Host + path
	at, err = url.Parse("https://" + key)
	return key, at, err == nil
}

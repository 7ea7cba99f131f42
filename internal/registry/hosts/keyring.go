// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// keyring has the logins of a file that kubelet reads, by kubelet's own rules
// (k8s.io/kubernetes/pkg/credentialprovider, keyring.go): a key is a host, in which * stands for a part of one name
// between dots, and the beginning of a path. All keys that match are in force, in reverse order of their text.
type keyring []keyringEntry

type keyringEntry struct {
	key  string // host and path, without scheme
	at   *url.URL
	auth authEntry
}

// dockerHub is the key that docker and kubelet use for Docker Hub.
const dockerHub = "index.docker.io"

// find returns the first login of a key that matches.
func (k keyring) find(host, repository string) (Login, error) {
	image, err := url.Parse("https://" + imageHost(host) + "/" + repository)
	if err != nil {
		return Login{}, nil //nolint:nilerr // a name that is no URL has no login in this file
	}
	var problem error
	for _, e := range k {
		if !matches(e.at, image) && (e.key != dockerHub || image.Host != "docker.io") {
			continue
		}
		if e.auth.problem == nil {
			return e.auth.login, nil
		}
		problem = errors.Join(problem, errors.New(e.key+": "+e.auth.problem.Error()))
	}
	return Login{}, problem
}

// imageHost is the host in the name of an image.
func imageHost(host string) string {
	switch host = strings.ToLower(host); host {
	case dockerHub, "registry-1.docker.io":
		return "docker.io"
	default:
		return host
	}
}

// matches is URLsMatch of kubelet.
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

// parseKeyring reads a config.json with auths, or the older .dockercfg, which is the map alone.
func parseKeyring(data []byte) (logins, error) {
	var file struct {
		Auths map[string]authJSONEntry `json:"auths"`
	}
	if json.Unmarshal(data, &file) != nil {
		return nil, errNoAuthFile
	}
	if file.Auths == nil && json.Unmarshal(data, &file.Auths) != nil {
		return nil, errNoAuthFile
	}
	var k keyring
	for _, name := range slices.Sorted(maps.Keys(file.Auths)) {
		key, at, ok := keyringKey(name)
		auth := file.Auths[name].kubelet()
		if ok && auth != (authEntry{}) {
			k = append(k, keyringEntry{key: key, at: at, auth: auth})
		}
	}
	slices.SortStableFunc(k, func(a, b keyringEntry) int { return strings.Compare(b.key, a.key) })
	return k, nil
}

// keyringKey is what kubelet makes of a key: without scheme, and without the version of an API before a path.
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

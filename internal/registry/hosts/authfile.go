// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
)

// Errors never quote the file, because the text may be the secret.
var (
	errNoAuthFile = errors.New("not JSON with auths")
	errNoAuth     = errors.New("auth is not the base64 of user:password")
	errHelper     = errors.New("in a credential helper, which the agent does not run")
	errNoSCC      = errors.New("no lines username= and password=")
)

// authFile has the logins of a containers-auth.json(5) or of docker's
// config.json, by host or host/path.
type authFile map[string]authEntry

type authEntry struct {
	login   Login
	problem error
}

// find returns the login with the longest key; the zero Login and nil if there is none. An unusable entry does not hide
// a shorter one.
func (f authFile) find(host, repository string) (Login, error) {
	var problem error
	key := authKey(host) + "/" + repository
	for {
		if e, ok := f[key]; ok {
			if e.problem == nil {
				return e.login, nil
			}
			problem = errors.Join(problem, errors.New(key+": "+e.problem.Error()))
		}
		cut := strings.LastIndexByte(key, '/')
		if cut < 0 {
			return Login{}, problem
		}
		key = key[:cut]
	}
}

// authJSONEntry is an entry of auths.
type authJSONEntry struct {
	Auth          string `json:"auth"`
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
}

type authJSON struct {
	Auths   map[string]authJSONEntry `json:"auths"`
	Helpers map[string]string        `json:"credHelpers"`
	Store   string                   `json:"credsStore"`
}

func parseAuthFile(data []byte) (authFile, error) {
	var read authJSON
	if json.Unmarshal(data, &read) != nil {
		return nil, errNoAuthFile
	}
	file := authFile{}
	for _, name := range authNames(maps.Keys(read.Auths)) {
		a, key := read.Auths[name], authKey(name)
		e := authEntry{login: Login{User: a.Username, Secret: a.Password}}
		switch {
		case a.IdentityToken != "":
			e.login = Login{Secret: a.IdentityToken}
		case a.Auth != "":
			e.login, e.problem = decodeAuth(a.Auth)
		case a.Username == "" || a.Password == "":
			if e = (authEntry{problem: errHelper}); read.Store == "" {
				continue // left by `docker logout`
			}
		}
		if _, there := file[key]; !there {
			file[key] = e
		}
	}
	for _, name := range authNames(maps.Keys(read.Helpers)) {
		if _, there := file[authKey(name)]; !there {
			file[authKey(name)] = authEntry{problem: errHelper}
		}
	}
	return file, nil
}

// authNames sorts keys so that of two for the same repository the one in normal form comes first, and the result does
// not depend on the order of the file.
func authNames(keys func(func(string) bool)) []string {
	return slices.SortedFunc(keys, func(a, b string) int {
		if plainA, plainB := a == authKey(a), b == authKey(b); plainA != plainB {
			if plainA {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
}

// authKey returns a key of podman or docker as host or host/path: docker supports only hosts, and also writes them as
// the URL of an API.
func authKey(name string) string {
	key := strings.TrimRight(name, "/")
	for _, scheme := range []string{"https://", "http://"} {
		if rest, ok := strings.CutPrefix(key, scheme); ok {
			key, _, _ = strings.Cut(rest, "/")
			break
		}
	}
	host, path, deeper := strings.Cut(key, "/")
	host = imageHost(host)
	if !deeper || path == "v1" || path == "v2" {
		return host
	}
	return host + "/" + path
}

// decodeAuth decodes user:password, with base64 padding or, as in kubelet, without. Old versions of docker padded with
// zeros.
func decodeAuth(auth string) (Login, error) {
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(auth), "="))
	if err != nil {
		return Login{}, errNoAuth
	}
	user, secret, ok := strings.Cut(strings.TrimRight(string(decoded), "\x00"), ":")
	if !ok || user == "" || secret == "" {
		return Login{}, errNoAuth
	}
	return Login{User: user, Secret: secret}, nil
}

// parseSCC parses the credentials file of a registered system: lines of name=value.
func parseSCC(data []byte) (Login, error) {
	login := Login{Optional: true}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, "=")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "username":
			login.User = value
		case "password":
			login.Secret = value
		}
	}
	if login.User == "" || login.Secret == "" {
		return Login{}, errNoSCC
	}
	return login, nil
}

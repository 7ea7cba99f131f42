// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Login is a login for a host.
type Login struct {
	User   string // empty: Secret is an identity token
	Secret string
	// Optional: if a token server refuses the login, the request is repeated without it. A node that SUSE's customer
	// center no longer knows still gets public images.
	Optional bool
}

// CredentialOptions name the places of logins.
type CredentialOptions struct {
	Root string // prefix of every path except File
	// Kubelet are kubelet's files with logins.
	Kubelet []string
	// Containerd returns the login of a host from containerd's configuration; zero if there is none. nil: not used.
	Containerd func(host string) (Login, error)
	// File is searched first; empty: none.
	File string
	// Getenv reads the environment: REGISTRY_AUTH_FILE and CREDENTIALS_DIRECTORY.
	Getenv func(string) string
	// Log receives a line for each unusable file; nil: none.
	Log *slog.Logger
}

// SystemdCredential is the name of the systemd credential with an auth.json.
const SystemdCredential = "image-update-agent.auth"

// sccHost is the only host that receives a node's login for SUSE's customer center.
const sccHost = "registry.suse.com"

// Sizes of files with logins. An auth.json of a thousand hosts has 200 kB.
const (
	maxAuthFile = 1 << 20
	maxSCCFile  = 4 << 10
)

// Credentials are the logins of a node. The first file of podman or docker with a login for a repository wins, and
// within it the longest key; without one, the first file that kubelet reads counts, by kubelet's rules, and then
// containerd's configuration. Files are read again when they change.
type Credentials struct {
	files      []*nodefile.Cached[authFile]
	kubelet    []*nodefile.Cached[keyring]
	containerd func(host string) (Login, error)
	scc        *nodefile.Cached[Login]
	log        *slog.Logger

	mu       sync.Mutex
	problems map[string]string // of containerd's configuration, by host, as last logged
}

// NewCredentials returns credentials without reading anything yet.
func NewCredentials(o CredentialOptions) *Credentials {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	fromSystemd := ""
	if dir := o.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		fromSystemd = filepath.Join(dir, SystemdCredential)
	}
	c := &Credentials{log: o.Log, containerd: o.Containerd, problems: map[string]string{}}
	if o.File != "" {
		c.files = append(c.files, authFileAt(o.File))
	}
	for _, path := range []string{
		o.Getenv("REGISTRY_AUTH_FILE"),
		fromSystemd,
		"/run/containers/0/auth.json",
		"/root/.config/containers/auth.json",
		"/root/.docker/config.json",
	} {
		if path != "" {
			c.files = append(c.files, authFileAt(filepath.Join("/", o.Root, path)))
		}
	}
	for _, path := range o.Kubelet {
		parse := parseConfigJSON
		if filepath.Base(path) == ".dockercfg" {
			parse = parseDockercfg
		}
		path = filepath.Join("/", o.Root, path)
		c.kubelet = append(c.kubelet, &nodefile.Cached[keyring]{Path: path, Limit: maxAuthFile, Parse: parse})
	}
	c.scc = &nodefile.Cached[Login]{
		Path: filepath.Join("/", o.Root, "/etc/zypp/credentials.d/SCCcredentials"), Limit: maxSCCFile, Parse: parseSCC,
	}
	return c
}

func authFileAt(path string) *nodefile.Cached[authFile] {
	return &nodefile.Cached[authFile]{Path: path, Limit: maxAuthFile, Parse: parseAuthFile}
}

// For returns the login for a repository on a host (with its port, if any). Without a login, the error is why a file or
// an entry could not be used.
func (c *Credentials) For(host, repository string) (Login, error) {
	var problems []error
	for _, file := range c.files {
		found, changed, err := file.Get()
		if err == nil && found != nil {
			var login Login
			if login, err = found.find(host, repository); login != (Login{}) {
				return login, nil
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", file.Path, err)
			}
		}
		problems = append(problems, c.logged(changed, err))
	}
	login, err := c.kubelets(host, repository)
	if login != (Login{}) {
		return login, nil
	}
	problems = append(problems, err)
	if login, err = c.containerds(host); login != (Login{}) {
		return login, nil
	}
	problems = append(problems, err)
	if host == sccHost {
		login, changed, err := c.scc.Get()
		if login != (Login{}) {
			return login, nil
		}
		problems = append(problems, c.logged(changed, err))
	}
	if err := errors.Join(problems...); err != nil {
		return Login{}, fmt.Errorf("credentials: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return Login{}, nil
}

// kubelets returns the login from the only file that kubelet uses: the first readable one. If kubelet may read a file
// that the agent must not, no login of a later file is used.
func (c *Credentials) kubelets(host, repository string) (Login, error) {
	var problems []error
	for _, file := range c.kubelet {
		found, changed, err := file.Get()
		problems = append(problems, c.logged(changed, err))
		if err == nil && found != nil {
			return found.find(host, repository), errors.Join(problems...)
		}
		if err != nil && !errors.Is(err, errNoAuthFile) && !errors.Is(err, errNoAuth) {
			break
		}
	}
	return Login{}, errors.Join(problems...)
}

// containerds returns the login of a host from containerd's configuration. A problem is logged once, until it changes.
func (c *Credentials) containerds(host string) (Login, error) {
	if c.containerd == nil {
		return Login{}, nil
	}
	login, err := c.containerd(host)
	c.mu.Lock()
	defer c.mu.Unlock()
	problem := fmt.Sprint(err)
	changed := problem != c.problems[host]
	c.problems[host] = problem
	return login, c.logged(changed, err)
}

// logged logs a problem once for each change of its file.
func (c *Credentials) logged(changed bool, err error) error {
	if changed && err != nil {
		c.log.Warn("cannot use credentials", "err", err)
	}
	return err
}

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

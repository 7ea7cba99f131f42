// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
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

// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// Login is what a host may be shown.
type Login struct {
	User   string // empty: Secret is an identity token
	Secret string
	// Optional: where a token server refuses the login, it is asked without. A node
	// that SUSE's customer center has forgotten still gets the public images.
	Optional bool
}

// CredentialOptions name the places of logins.
type CredentialOptions struct {
	Root string // before every path but File
	// Kubelet are the files in which kubelet looks for logins.
	Kubelet []string
	// File is searched first; empty: none.
	File string
	// Getenv reads the environment: REGISTRY_AUTH_FILE and CREDENTIALS_DIRECTORY.
	Getenv func(string) string
	// Log gets a line for each file that cannot be used; nil: none.
	Log *slog.Logger
}

// SystemdCredential is the name of the systemd credential with an auth.json.
const SystemdCredential = "image-update-agent.auth"

// sccHost is the only host that sees a node's login for SUSE's customer center.
const sccHost = "registry.suse.com"

// Sizes of files with logins. An auth.json of a thousand hosts has 200 kB.
const (
	maxAuthFile = 1 << 20
	maxSCCFile  = 4 << 10
)

// Credentials are the logins of a node. The first file of podman and docker with a
// login for a repository wins, and in it the longest key; without one, the first file
// that kubelet reads counts, by kubelet's rules. Files are read again when they change.
type Credentials struct {
	files   []*nodefile.Cached[authFile]
	kubelet []*nodefile.Cached[keyring]
	scc     *nodefile.Cached[Login]
	log     *slog.Logger
}

// NewCredentials knows the places; nothing is read yet.
func NewCredentials(o CredentialOptions) *Credentials {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	fromSystemd := ""
	if dir := o.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		fromSystemd = filepath.Join(dir, SystemdCredential)
	}
	c := &Credentials{log: o.Log}
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

// For gives the login for a repository on a host (with its port, where it has
// one). Without one, the error is what kept a file or an entry from being used.
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

// kubelets is the login of the only file that kubelet uses: the first that it can read. Behind a file that kubelet may
// read and the agent must not, no login is known.
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

// logged logs a problem once for each change of its file.
func (c *Credentials) logged(changed bool, err error) error {
	if changed && err != nil {
		c.log.Warn("credentials not used", "err", err)
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

// Package hosts reads how the node reaches registries: the hosts of containerd's certs.d, logins, certificate
// authorities and the proxy. Everything is read again when it changes.
//
// A namespace is the host in a repository's name: registry.suse.com in registry.suse.com/caasp/v4/velum. A host is a
// server that may answer for it: the namespace itself (upstream) or a mirror from hosts.toml.
//
// Why the package reads authorities and proxy itself: Go reads the authorities once, systemd an EnvironmentFile= once,
// and both are what admins change when polls fail. The files are compared by inode, size and times before each request.
// Credential helpers are programs and are not run.
package hosts

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// KeptFor is how long the hosts of a namespace are cached while nothing in their directory changes: a ca or client
// certificate may be elsewhere. It is long enough for one cycle, which keeps its tokens, and short for an admin.
const KeptFor = 10 * time.Minute

// CheckEvery is how often the files of a namespace are checked for changes: a poll of many images takes a second, and
// checking for each image was 40 % of its CPU.
const CheckEvery = time.Second

// Client connects to the hosts.
type Client interface {
	// UpdateClient changes the client that containerd's parser makes for a host.
	UpdateClient(client *http.Client) error
	// Authorize sets the clients and authorizers of the hosts of one namespace.
	Authorize(hosts []docker.RegistryHost)
	// Roots returns the authorities for hosts without their own ca, a new pool when they change.
	Roots() *x509.CertPool
}

// Set has the hosts of all namespaces, cached with their tokens until their directory of certs.d changes. It is safe
// for concurrent use.
type Set struct {
	CheckEvery time.Duration // New sets CheckEvery; tests that change files set another
	// Ignored returns why containerd currently ignores hosts.toml; empty if it does not. nil: never.
	Ignored func() (why string, err error)

	find   func(namespace string) (string, error)
	parse  docker.RegistryHosts
	client Client

	mu   sync.Mutex
	kept map[string]namespace
}

type namespace struct {
	hosts   []docker.RegistryHost
	stamp   string
	ignored string // the directory that containerd ignores, and why; empty if there is none
	roots   *x509.CertPool
	until   time.Time // time of the next read in any case
	checked time.Time
}

// New returns a set of the hosts in containerd's registry directories (its config_path, split at the colons). The first
// one with the namespace, or with _default, wins. It reads nothing yet.
func New(certsDirs []string, client Client) *Set {
	s := &Set{CheckEvery: CheckEvery, find: firstDir(certsDirs), client: client, kept: map[string]namespace{}}
	// The context only carries containerd's logger; the hosts live longer than any request.
	s.parse = config.ConfigureHosts(quiet(context.Background()), config.HostOptions{
		HostDir: func(name string) (string, error) {
			dir, _, err := s.dir(name)
			return dir, err
		},
		UpdateClient: client.UpdateClient,
	})
	return s
}

// Of returns the hosts of a namespace in order; it is a docker.RegistryHosts of containerd.
func (s *Set) Of(name string) ([]docker.RegistryHost, error) { return s.checked(name, s.CheckEvery) }

// Now is like Of, and detects a change at once.
func (s *Set) Now(name string) ([]docker.RegistryHost, error) { return s.checked(name, 0) }

// checked returns the hosts of a namespace whose files were checked at most ago before.
func (s *Set) checked(name string, ago time.Duration) ([]docker.RegistryHost, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	known, ok := s.kept[name]
	if ok && now.Before(known.checked.Add(ago)) {
		return known.hosts, nil
	}
	stamp, ignored, err := s.stamp(name)
	if err != nil {
		return nil, err
	}
	roots := s.client.Roots()
	if !ok || known.stamp != stamp || known.roots != roots || !now.Before(known.until) {
		known = namespace{stamp: stamp, ignored: ignored, roots: roots, until: now.Add(KeptFor)}
		if known.hosts, err = s.read(name); err != nil {
			return nil, err
		}
		if dir, _, err := s.dir(name); err == nil {
			if d := readDir(context.Background(), dir); d.Unparsed != nil {
				known.ignored = fmt.Sprintf("%s is ignored: %v", filepath.Join(dir, "hosts.toml"), d.Unparsed)
			}
		}
	}
	known.checked = now
	s.kept[name] = known
	return known.hosts, nil
}

// IgnoredFor returns the directory or hosts.toml of a namespace that containerd ignored when Of last read it, and why;
// empty if there is none, or if containerd follows it.
func (s *Set) IgnoredFor(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[name].ignored
}

// dir returns the directory of a namespace that containerd follows, and the one that it ignores.
func (s *Set) dir(name string) (dir, ignored string, err error) {
	dir, err = s.find(name)
	if err != nil || s.Ignored == nil {
		return dir, "", err
	}
	why, err := s.Ignored()
	if err == nil && why != "" {
		dir, ignored, err = "", fmt.Sprintf("%s is ignored: %s", dir, why), errdefs.ErrNotFound
	}
	return dir, ignored, err
}

// read reads the directory of a namespace with containerd's parser, if the files can be read.
func (s *Set) read(name string) ([]docker.RegistryHost, error) {
	dir, _, err := s.dir(name)
	if err == nil {
		err = checkDir(dir)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	hosts, err := s.parse(name)
	if err != nil {
		return nil, refused(err)
	}
	s.client.Authorize(hosts)
	return hosts, nil
}

// firstDir finds the directory of a namespace in several directories as containerd's CRI plugin does with its
// config_path.
func firstDir(dirs []string) func(string) (string, error) {
	return func(namespace string) (string, error) {
		for _, dir := range dirs {
			found, err := config.HostDirFromRoot(dir)(namespace)
			if err == nil || !errdefs.IsNotFound(err) {
				return found, err
			}
		}
		return "", errdefs.ErrNotFound
	}
}

// stamp returns a text that changes when the directory for a namespace is another one, or a file in it changes, or
// containerd ignores it.
func (s *Set) stamp(name string) (text, ignored string, err error) {
	dir, ignored, err := s.dir(name)
	if errdefs.IsNotFound(err) {
		return ignored, ignored, nil
	}
	if err != nil {
		return "", "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", "", err
	}
	stamp := new(strings.Builder)
	stamp.WriteString(dir)
	for _, entry := range entries {
		info, err := os.Stat(filepath.Join(dir, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // containerd does not count a dangling link as a file either
		}
		if err != nil {
			return "", "", err
		}
		fmt.Fprintf(stamp, "\n%s %s", entry.Name(), nodefile.Stamp(info))
	}
	return stamp.String(), "", nil
}

// SPDX-License-Identifier: Apache-2.0

// Package hosts reads how the node reaches registries: the hosts of containerd's certs.d, logins, certificate
// authorities and the proxy. All of it is read again when it changes.
//
// A namespace is the host that a repository names: registry.suse.com in registry.suse.com/caasp/v4/velum. A host is a
// server that may answer for it: the namespace itself (upstream) or a mirror, as hosts.toml says.
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

	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// KeptFor is how long the hosts of a namespace are kept although nothing in their
// directory changed: a ca or client certificate may lie elsewhere. It is long
// for one cycle, which keeps its tokens, and short for an admin.
const KeptFor = 10 * time.Minute

// CheckEvery is how often the files of a namespace are checked for changes: a poll of
// many images asks within a second, and checking each time was 40 % of its CPU.
const CheckEvery = time.Second

// Client connects to the hosts.
type Client interface {
	// UpdateClient changes the client that containerd's parser makes for a host.
	UpdateClient(client *http.Client) error
	// Authorize gives the hosts of one namespace their clients and authorizers.
	Authorize(hosts []docker.RegistryHost)
	// Roots are the authorities for hosts without a ca of their own, another pool when they change.
	Roots() *x509.CertPool
}

// Set is the hosts of all namespaces, kept with their tokens until the directory
// of certs.d that they come from changes. It is safe for concurrent use.
type Set struct {
	CheckEvery time.Duration // New: CheckEvery; tests that change files set another
	// Ignored returns why containerd follows no hosts.toml now; empty: it does. nil: it always does.
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
	ignored string // the directory that containerd does not follow, and why; empty: there is none
	roots   *x509.CertPool
	until   time.Time // when it is read again in any case
	checked time.Time
}

// New makes a set of the hosts that containerd's registry directories describe (its
// config_path, split at the colons). The first that knows a namespace, or has
// _default, wins. Nothing is read yet.
func New(certsDirs []string, client Client) *Set {
	s := &Set{CheckEvery: CheckEvery, find: firstDir(certsDirs), client: client, kept: map[string]namespace{}}
	// The context only carries containerd's logger; the hosts outlive any request.
	s.parse = config.ConfigureHosts(masked(context.Background()), config.HostOptions{
		HostDir: func(name string) (string, error) {
			dir, _, err := s.dir(name)
			return dir, err
		},
		UpdateClient: client.UpdateClient,
	})
	return s
}

// Of returns the hosts of a namespace in their order; it is containerd's
// docker.RegistryHosts.
func (s *Set) Of(name string) ([]docker.RegistryHost, error) { return s.checked(name, s.CheckEvery) }

// Now is Of, and sees a change at once.
func (s *Set) Now(name string) ([]docker.RegistryHost, error) { return s.checked(name, 0) }

// checked returns the hosts of a namespace, whose files were checked at most so long ago.
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
	}
	known.checked = now
	s.kept[name] = known
	return known.hosts, nil
}

// IgnoredFor returns the directory of a namespace that containerd did not follow when Of read it last, and why; empty:
// there is none, or it follows it.
func (s *Set) IgnoredFor(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[name].ignored
}

// dir finds the directory of a namespace that containerd follows, and the one that it ignores.
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

// read has containerd's parser read the directory of a namespace, if it can be read.
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
		return nil, err
	}
	s.client.Authorize(hosts)
	return hosts, nil
}

// firstDir finds the directory of a namespace in several directories as containerd's CRI
// plugin does with its config_path.
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

// stamp changes when the directory for a namespace is another one, or a file in
// it changed, or containerd ignores it.
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
			continue // a dangling link is no file for containerd either
		}
		if err != nil {
			return "", "", err
		}
		fmt.Fprintf(stamp, "\n%s %s", entry.Name(), nodefile.Stamp(info))
	}
	return stamp.String(), "", nil
}

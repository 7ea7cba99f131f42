// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"

	"github.com/kubic-project/image-update-agent/internal/trustedfile"
)

// hostsKept is how long a namespace's hosts are kept although nothing in their
// directory changed: a ca or client certificate may lie elsewhere. It is long
// for one cycle, which keeps its tokens, and short for an admin.
const hostsKept = 10 * time.Minute

// hostsLook is how often the files of a namespace are looked at: a poll of many
// images asks within a second, and to look each time was 40 % of its CPU.
const hostsLook = time.Second

// hosts are the registry hosts of all namespaces, kept with their tokens until
// the directory of certs.d that they come from changes.
type hosts struct {
	dir          func(namespace string) (string, error)
	configure    docker.RegistryHosts
	login        func(host, repository string) (Login, error)
	tokenServers map[string]string
	net          *network
	log          *slog.Logger

	look time.Duration // hostsLook; tests that change files set another
	mu   sync.Mutex
	kept map[string]hostSet // by namespace
}

type hostSet struct {
	hosts []docker.RegistryHost
	stamp string
	roots *x509.CertPool
	until time.Time // when it is made anew, whatever
	fresh time.Time // until when the files are not looked at
}

func newHosts(o Options, n *network) *hosts {
	h := &hosts{
		dir: firstDir(o.CertsDirs), login: o.Credentials, tokenServers: o.TokenServers,
		net: n, log: o.Log, look: hostsLook, kept: map[string]hostSet{},
	}
	// The context only carries containerd's logger; the hosts outlive any request.
	h.configure = config.ConfigureHosts(context.Background(), config.HostOptions{
		HostDir:      h.dir,
		UpdateClient: n.adopt,
	})
	return h
}

// of gives the hosts of a namespace in their order; it is containerd's
// docker.RegistryHosts.
func (h *hosts) of(namespace string) ([]docker.RegistryHost, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	set, ok := h.kept[namespace]
	if ok && now.Before(set.fresh) {
		return set.hosts, nil
	}
	stamp, err := h.stamp(namespace)
	if err != nil {
		return nil, err
	}
	roots, fresh := h.net.roots(), now.Add(h.look)
	if ok && set.stamp == stamp && set.roots == roots && now.Before(set.until) {
		set.fresh = fresh
		h.kept[namespace] = set
		return set.hosts, nil
	}
	configured, err := h.read(namespace)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, host := range configured {
		named[keyOf(host)] = true
	}
	for i := range configured {
		h.finish(&configured[i], named)
	}
	h.kept[namespace] = hostSet{configured, stamp, roots, now.Add(hostsKept), fresh}
	return configured, nil
}

// read has containerd's parser read the directory of a namespace, if it can be read.
func (h *hosts) read(namespace string) ([]docker.RegistryHost, error) {
	switch dir, err := h.dir(namespace); {
	case err == nil:
		if err := checkHostsDir(dir); err != nil {
			return nil, err
		}
	case !errdefs.IsNotFound(err):
		return nil, err
	}
	return h.configure(namespace)
}

func keyOf(host docker.RegistryHost) string {
	return hostKey(&url.URL{Scheme: host.Scheme, Host: host.Host})
}

// finish gives a host our rules for redirects and tokens. named are the hosts
// that the namespace's hosts.toml names.
func (h *hosts) finish(host *docker.RegistryHost, named map[string]bool) {
	asked := &askedHost{name: keyOf(*host), named: named}
	if server := h.tokenServers[host.Host]; server != "" {
		asked.named = maps.Clone(named)
		asked.named[hostKey(&url.URL{Scheme: "https", Host: server})] = true
	}
	home := &url.URL{Scheme: host.Scheme, Host: host.Host}
	may := mayShow(home, h.tokenServers)
	header := canonical(host.Header)
	host.Header = header
	tokens := following(&tokenTransport{
		next: host.Client.Transport, plain: host.Scheme == "http", may: may, own: header, net: h.net,
	}, header, asked)
	host.Client = following(host.Client.Transport, header, asked)
	fresh := func(l Login) docker.Authorizer {
		return docker.NewDockerAuthorizer(docker.WithAuthClient(tokens), docker.WithAuthHeader(header),
			docker.WithAuthCreds(func(string) (string, string, error) { return l.User, l.Secret, nil }))
	}
	host.Authorizer = &authorizer{home: home, login: h.login, may: may, log: h.log, fresh: fresh}
}

// canonical gives headers the names that Go knows them by; containerd leaves them
// as they stand in hosts.toml, where a second "user-agent" would go out beside
// ours, and an "authorization" nobody would see.
func canonical(header http.Header) http.Header {
	if header == nil {
		return nil
	}
	named := http.Header{}
	for name, values := range header {
		for _, value := range values {
			named.Add(name, value)
		}
	}
	return named
}

// firstDir looks a namespace up in several directories as containerd's CRI
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
// it changed.
func (h *hosts) stamp(namespace string) (string, error) {
	dir, err := h.dir(namespace)
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	stamp := new(strings.Builder)
	stamp.WriteString(dir)
	for _, entry := range entries {
		info, err := os.Stat(filepath.Join(dir, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a dangling link is no file for containerd either
		}
		if err != nil {
			return "", err
		}
		if !info.Mode().IsRegular() && !info.IsDir() {
			return "", fmt.Errorf("%s: not a regular file", filepath.Join(dir, entry.Name())) // a FIFO would block for ever
		}
		fmt.Fprintf(stamp, "\n%s %s", entry.Name(), trustedfile.Stamp(info))
	}
	return stamp.String(), nil
}

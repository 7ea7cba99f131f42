// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"crypto/x509"
	"maps"
	"net/http"
	"net/url"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// Roots are the authorities for hosts that have no ca of their own.
func (n *network) Roots() *x509.CertPool { return n.roots() }

// Authorize gives the hosts of a namespace our rules for redirects and tokens.
func (n *network) Authorize(all []docker.RegistryHost) {
	named := map[string]bool{}
	for _, host := range all {
		named[keyOf(host)] = true
	}
	for i := range all {
		n.authorize(&all[i], named)
	}
}

func keyOf(host docker.RegistryHost) string {
	return hostKey(&url.URL{Scheme: host.Scheme, Host: host.Host})
}

// authorize gives a host its client and authorizer. named are the hosts that the
// namespace's hosts.toml names.
func (n *network) authorize(host *docker.RegistryHost, named map[string]bool) {
	asked := &askedHost{name: keyOf(*host), named: named}
	if server := n.tokenServers[host.Host]; server != "" {
		asked.named = maps.Clone(named)
		asked.named[hostKey(&url.URL{Scheme: "https", Host: server})] = true
	}
	home := &url.URL{Scheme: host.Scheme, Host: host.Host}
	may := mayShow(home, n.tokenServers)
	header := canonical(host.Header)
	host.Header = header
	tokens := following(&tokenTransport{
		next: host.Client.Transport, plain: host.Scheme == "http", may: may, own: header, net: n,
	}, header, asked)
	host.Client = following(host.Client.Transport, header, asked)
	fresh := func(l hosts.Login) docker.Authorizer {
		return docker.NewDockerAuthorizer(docker.WithAuthClient(tokens), docker.WithAuthHeader(header),
			docker.WithAuthCreds(func(string) (string, string, error) { return l.User, l.Secret, nil }))
	}
	host.Authorizer = &authorizer{home: home, login: n.login, may: may, log: n.log, fresh: fresh}
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

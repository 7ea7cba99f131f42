// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"maps"
	"net/http"
	"net/url"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// Authorize gives the hosts of a namespace our rules for redirects and tokens.
func (c *Client) Authorize(all []docker.RegistryHost) {
	named := map[string]bool{}
	for _, host := range all {
		named[keyOf(host)] = true
	}
	for i := range all {
		c.authorize(&all[i], named)
	}
}

func keyOf(host docker.RegistryHost) string {
	return hostKey(&url.URL{Scheme: host.Scheme, Host: host.Host})
}

// authorize gives a host its client and authorizer. named are the hosts that the
// namespace's hosts.toml names.
func (c *Client) authorize(host *docker.RegistryHost, named map[string]bool) {
	asked := &askedHost{name: keyOf(*host), named: named}
	if server := c.options.TokenServers[host.Host]; server != "" {
		asked.named = maps.Clone(named)
		asked.named[hostKey(&url.URL{Scheme: "https", Host: server})] = true
	}
	home := &url.URL{Scheme: host.Scheme, Host: host.Host}
	may := mayShow(home, c.options.TokenServers)
	header := canonical(host.Header)
	host.Header = header
	next := host.Client.Transport
	tokens := following(&tokenTransport{
		next: next, plain: host.Scheme == "http", may: may, own: header,
	}, header, asked, nil)
	led := newForeignTokens(func(scheme string) *http.Client {
		return following(&tokenTransport{
			next: next, plain: scheme == "http", may: may, own: header,
		}, header, asked, nil)
	})
	host.Client = following(next, header, asked, led)
	fresh := func(l hosts.Login) docker.Authorizer {
		return docker.NewDockerAuthorizer(docker.WithAuthClient(tokens), docker.WithAuthHeader(header),
			docker.WithAuthCreds(func(string) (string, string, error) { return l.User, l.Secret, nil }))
	}
	host.Authorizer = &authorizer{
		home: home, login: c.options.Credentials, may: may, log: c.options.Log, fresh: fresh, led: led,
	}
}

// canonical gives headers the names that Go knows them by; containerd leaves them
// as they stand in hosts.toml, where a second "user-agent" would go out beside
// ours, and an "authorization" would be overlooked.
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

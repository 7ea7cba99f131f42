// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"maps"
	"net/http"
	"net/url"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// Authorize applies the agent's rules for redirects and tokens to the hosts of a namespace.
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

// authorize sets the client and authorizer of a host. named are the hosts in the namespace's hosts.toml.
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

// canonical converts header names to Go's canonical form; containerd leaves them as in hosts.toml, where a second
// "user-agent" would be sent in addition to the agent's, and an "authorization" would be overlooked.
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

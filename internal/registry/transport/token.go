// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// tokenServers are the known token servers of registries on other hosts, which may receive their logins.
var tokenServers = map[string]string{
	"registry-1.docker.io": "auth.docker.io",
	"registry.suse.com":    "scc.suse.com",
	"registry.gitlab.com":  "gitlab.com",
}

// mayShow returns whether logins for the host home may be sent to a realm: it is the host itself, or its token server,
// and uses TLS.
func mayShow(home *url.URL, servers map[string]string) func(*url.URL) bool {
	own := cmp.Or(servers[home.Host], tokenServers[strings.ToLower(home.Host)])
	return func(realm *url.URL) bool {
		if realm.Scheme != "https" || realm.User != nil || realm.Host == "" {
			return false
		}
		return SameOrigin(home, realm) || own != "" && SameOrigin(&url.URL{Scheme: "https", Host: own}, realm)
	}
}

// tokenTransport sends requests to token servers: never over plain http unless the host itself uses it, without secrets
// for a foreign one, and with limits for answers and time.
type tokenTransport struct {
	next  http.RoundTripper
	plain bool // the host itself uses plain http, and has no credentials
	may   func(*url.URL) bool
	own   http.Header // the host's headers of hosts.toml, which may be secret as well
}

func (t *tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !t.plain {
		return nil, errors.Join(errPlainRealm, closeBody(req))
	}
	ctx, cancel := context.WithTimeout(forToken(req.Context()), askTimeout)
	defer cancel()
	req = req.Clone(ctx)
	if !t.may(req.URL) {
		// A POST has the password in its body, which a redirect with 307 or 308 sends again.
		if req.Method == http.MethodPost {
			return nil, errors.Join(errForeignHost, closeBody(req))
		}
		withoutSecrets(req.Header, t.own)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	data, err := readBody(resp, maxToken)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp, nil
}

// withoutSecrets removes from a header what another host must not see: possible secrets, the host's headers of
// hosts.toml, and the Referer, because redirects are signed in their query.
func withoutSecrets(header, own http.Header) {
	for _, name := range []string{"Authorization", "Cookie", "Referer"} {
		header.Del(name)
	}
	for name := range own {
		delete(header, name)
		header.Del(name)
	}
}

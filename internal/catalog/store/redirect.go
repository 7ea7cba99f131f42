// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/kubic-project/image-update-agent/internal/base/reach"
)

// errRedirect: a redirect is not followed.
var errRedirect = errors.New("redirect not followed")

// redirected is the key of a context's value: the host that has redirected its request.
type redirected struct{}

// checkRedirect follows few redirects, none from https to http, and none to the private address of
// another host: a registry could have a build machine ask its own network. A name may lead there, too: see connections.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first, host := via[0].URL, next.URL.Hostname()
	address, err := netip.ParseAddr(host)
	isInward := err == nil && reach.Of(address) > reach.Public
	proxy, errProxy := http.ProxyFromEnvironment(next)
	if errProxy != nil || proxy != nil { // which may take an odd name for an address
		isInward = isInward || !reach.IsDNSName(host)
	}
	switch {
	case len(via) > maxRedirect:
		return fmt.Errorf("%w: more than %d", errRedirect, maxRedirect)
	case via[len(via)-1].URL.Scheme == "https" && next.URL.Scheme != "https":
		return fmt.Errorf("%w: from https to %s", errRedirect, next.URL.Scheme)
	case isInward && host != first.Hostname():
		return fmt.Errorf("%w: to the private address %s", errRedirect, host)
	}
	if errProxy == nil && proxy == nil {
		*next = *next.WithContext(context.WithValue(next.Context(), redirected{}, first.Hostname()))
	}
	return nil
}

// connections are those to registries, and to where they redirect to: to no address that is nearer than that of the
// registry itself. The requests that one registry redirects have connections of their own, so that each was checked for
// that registry when it was made: a kept one may lead where another registry is.
type connections struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	reach sync.Map // by host: that of its address
	mu    sync.Mutex
	kept  map[string]*http.Transport // by the host that redirects; "": for requests that are not redirected
}

// RoundTrip sends a request.
func (c *connections) RoundTrip(r *http.Request) (*http.Response, error) {
	from, _ := r.Context().Value(redirected{}).(string)
	return c.of(from).RoundTrip(r)
}

func (c *connections) of(from string) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.kept[from]
	if !ok {
		if t = newTransport(c.connect); c.kept == nil {
			c.kept = map[string]*http.Transport{}
		}
		c.kept[from] = t
	}
	return t
}

func (c *connections) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	to := reach.Address(conn.RemoteAddr().String())
	from, isRedirected := ctx.Value(redirected{}).(string)
	if !isRedirected || from == host {
		c.reach.Store(host, reach.Of(to))
		return conn, nil
	}
	of, _ := c.reach.Load(from)
	if own, _ := of.(reach.Reach); reach.Of(to) > own {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %s has %s address: %s", errRedirect, host, reach.Of(to), to)
	}
	return conn, nil
}

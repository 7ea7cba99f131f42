// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
)

// errRedirect: a redirect is not followed.
var errRedirect = errors.New("redirect not followed")

// redirected is the key of a context's value: the host that has redirected its request.
type redirected struct{}

// checkRedirect follows few redirects, none from https to http, and none to the private address of
// another host: a registry could have a build machine ask its own network. A name may lead there, too: see dialer.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	address, err := netip.ParseAddr(strings.Trim(next.URL.Hostname(), "[]"))
	switch {
	case len(via) > maxRedirect:
		return fmt.Errorf("%w: more than %d", errRedirect, maxRedirect)
	case via[len(via)-1].URL.Scheme == "https" && next.URL.Scheme != "https":
		return fmt.Errorf("%w: from https to %s", errRedirect, next.URL.Scheme)
	case err == nil && isInside(address) && next.URL.Hostname() != first.Hostname():
		return fmt.Errorf("%w: to the private address %s", errRedirect, next.URL.Hostname())
	}
	if proxy, err := http.ProxyFromEnvironment(next); err == nil && proxy == nil {
		*next = *next.WithContext(context.WithValue(next.Context(), redirected{}, first.Hostname()))
	}
	return nil
}

func isInside(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified()
}

// dialer connects to registries, and to where they redirect to: to a private address only if the registry itself has
// one.
type dialer struct {
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	inside sync.Map // by host: whether its address is private
}

func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	to, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	isPrivate := err == nil && isInside(to.Addr())
	from, isRedirected := ctx.Value(redirected{}).(string)
	if !isRedirected || from == host {
		d.inside.Store(host, isPrivate)
		return conn, nil
	}
	if fromInside, _ := d.inside.Load(from); isPrivate && fromInside != any(true) {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %s has the private address %s", errRedirect, host, to.Addr())
	}
	return conn, nil
}

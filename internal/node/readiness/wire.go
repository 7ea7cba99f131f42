// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

const (
	maxHeader    = 64 << 10
	maxAddresses = 32 // all are tried within a probe's timeout
)

// newTransport returns a transport like kubelet's, without kept connections.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // not even the environment's
		DialContext:            (&net.Dialer{KeepAlive: -1}).DialContext,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: maxHeader,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			// A container's certificate names its service, not the probe's address; kubelet does not verify it, either.
			// The request has no secrets.
			InsecureSkipVerify: true, //nolint:gosec // see above
		},
	}
}

// hostAddresses returns the addresses of the host's interfaces: one of them is the node's, which kubelet asks. It never
// asks loopback (validateNodeIP in k8s.io/kubernetes/pkg/kubelet/kubelet_node_status.go) unless a probe names it.
func hostAddresses(ctx context.Context) (found []netip.Addr) {
	own, err := net.InterfaceAddrs()
	if err != nil { // the service may not be allowed to open netlink sockets
		return append(found, sources(ctx)...)
	}
	for _, o := range own {
		prefix, err := netip.ParsePrefix(o.String())
		if a := prefix.Addr(); err == nil && a.IsGlobalUnicast() && len(found) < maxAddresses {
			found = append(found, a)
		}
	}
	return found
}

// sources returns the source addresses of the default routes, as kubelet chooses a node's address. It sends nothing;
// the destinations are for documentation (RFC 5737, RFC 3849).
func sources(ctx context.Context) []netip.Addr {
	var found []netip.Addr
	for _, far := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", far)
		if err != nil {
			continue // no route of this family
		}
		local, err := netip.ParseAddrPort(conn.LocalAddr().String())
		if closing := conn.Close(); err == nil && closing == nil {
			found = append(found, local.Addr())
		}
	}
	return found
}

// shown returns a URL for a message, without user and query.
func shown(u *url.URL) string {
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return outside.Text(bare.String())
}

func statusError(code int) error {
	return errors.New(strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code))))
}

// lateError says that a timeout was over.
type lateError struct{ text string }

func (l *lateError) Error() string { return l.text }

// withTimeout names the timeout if it is the cause.
func withTimeout(err error, timeout time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &lateError{fmt.Sprintf("no answer within %v", timeout)}
	}
	return cause(err)
}

// cause removes the URL of a url.Error, which the message already has and which may be secret.
func cause(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return errors.New(outside.Text(err.Error()))
}

// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

var hostName = lazyregexp.New(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)

// placeOf returns scheme and host of a URL with a port and nothing else. Other URLs are rejected: the source of an
// address must not choose the path of the request.
func placeOf(text string) (place string, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.User != nil || u.ForceQuery ||
		u.RawQuery != "" || strings.Contains(text, "#") || u.Path != "" && u.Path != "/" {
		return "", false
	}
	host, port := u.Hostname(), u.Port()
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return "", false
	}
	if ip, err := netip.ParseAddr(host); err != nil && !hostName().MatchString(host) || ip.Zone() != "" {
		return "", false
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port), true
}

func isHTTPS(place string) bool { return strings.HasPrefix(place, "https://") }

// hostOf returns host:port of a place.
func hostOf(place string) string {
	_, host, _ := strings.Cut(place, "://")
	return host
}

// atHome returns the local addresses for a listen address, because a wildcard address cannot be called.
func atHome(place string) []string {
	scheme, at, _ := strings.Cut(place, "://")
	host, port, _ := net.SplitHostPort(at)
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil || !ip.IsUnspecified():
		return []string{place}
	case ip.Is4():
		return []string{scheme + "://" + net.JoinHostPort("127.0.0.1", port)}
	}
	return []string{scheme + "://" + net.JoinHostPort("127.0.0.1", port), scheme + "://" + net.JoinHostPort("::1", port)}
}

// isLoopback reports whether a place is always on the calling machine.
func isLoopback(place string) bool {
	host, _, _ := net.SplitHostPort(hostOf(place))
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && (ip.Unmap().IsLoopback() || ip.IsUnspecified())
}

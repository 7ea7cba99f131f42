// SPDX-License-Identifier: Apache-2.0

// Package reach says from where an address can be reached, so that what a stranger answers leads no request to this
// machine or its network.
package reach

import (
	"net/netip"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// Reach says from where an address can be reached. A larger one is nearer to the node, and less acceptable from a
// stranger.
type Reach int32

// The reaches, the nearest last.
const (
	Public Reach = iota
	Private
	LinkLocal // where clouds serve a machine's secrets
	Loopback
)

func (r Reach) String() string {
	return [...]string{"a public", "a private", "a link-local", "a loopback"}[r]
}

// privateRanges are a site's ranges that netip does not call private: shared address space (RFC 6598), benchmarks (RFC
// 2544), protocol assignments, including a cloud's metadata (RFC 6890), site-local (RFC 3879), a site's own NAT64 (RFC
// 8215).
var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("64:ff9b:1::/48"),
}

// translated is the range in which NAT64 has IPv4 addresses, in the last four bytes (RFC 6052).
var translated = netip.MustParsePrefix("64:ff9b::/96")

// Of returns the reach of an address. One that is not valid is trusted least.
func Of(address netip.Addr) Reach {
	address = address.Unmap().WithZone("")
	if translated.Contains(address) {
		all := address.As16()
		address = netip.AddrFrom4([4]byte(all[12:]))
	}
	switch {
	// Linux treats the unspecified address, and the rest of 0.0.0.0/8, as this host.
	case !address.IsValid(), address.IsLoopback(), address.IsUnspecified(), address.Is4() && address.As4()[0] == 0:
		return Loopback
	case address.IsLinkLocalUnicast(), address.IsMulticast():
		return LinkLocal
	case address.IsPrivate():
		return Private
	}
	for _, private := range privateRanges {
		if private.Contains(address) {
			return Private
		}
	}
	return Public
}

// noDNSName matches the end of a name that is not in the DNS: of a.localhost, and of addresses that only inet_aton(3)
// parses, such as 2130706433, 127.1, 0x7f.1.
var noDNSName = lazyregexp.New(`(?i)(^|\.)([0-9]+|0x[0-9a-f]*|localhost)\.?$`)

// IsDNSName reports whether a host is a name of the DNS. A proxy that resolves another one could parse it as an
// address.
func IsDNSName(host string) bool { return !noDNSName().MatchString(host) }

// Address returns the address before a port; the zero one, which is trusted least, if there is none.
func Address(hostPort string) netip.Addr {
	at, _ := netip.ParseAddrPort(hostPort)
	return at.Addr()
}

// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"net/netip"
)

var (
	errListen = errors.New("want a loopback address with a port, such as 127.0.0.1:9547 or [::1]:9547")
	// Whoever can open a connection may read: nobody is asked for a login, and the
	// answer names images and hosts. Off the node that is for a proxy to allow.
	errNoLoopback = errors.New("not a loopback address, and the numbers are served without authentication; " +
		"want one such as 127.0.0.1:9547 or [::1]:9547")
)

// loopback takes an address that only processes of this node can reach. A name is
// refused, also localhost: who answers for it says what it is.
func loopback(text string) error {
	if text == "" {
		return nil
	}
	at, err := netip.ParseAddrPort(text)
	switch {
	case err != nil, at.Port() == 0, at.Addr().Zone() != "":
		return errListen
	case !at.Addr().Unmap().IsLoopback():
		return errNoLoopback
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package localregistry

import "slices"

// Address is the listen address of the local registry. The port is below 1024, so that only root can listen on it;
// below 512, because NFS and other users of bindresvport(3) choose no such port; and IANA assigns it to no service.
const Address = "127.0.0.1:334"

// URL is the local registry's URL in hosts.toml.
const URL = "http://" + Address

// Is reports whether a host of a registry, as containerd's parser reads it, is the local registry. host includes its
// port.
func Is(scheme, host string) bool { return scheme == "http" && host == Address }

// PositionIn returns the position of the local registry among the hosts of a registry: their URLs without a path, in
// the order in which containerd asks. At the front it is the Gate, after another host a Fallback.
func PositionIn(hosts []string) Position {
	switch slices.Index(hosts, URL) {
	case -1:
		return Off
	case 0:
		return Gate
	default:
		return Fallback
	}
}

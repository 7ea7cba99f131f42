// SPDX-License-Identifier: Apache-2.0

package ownhost

import "slices"

// Address is where the own host listens. The port is below 1024, so that only root may listen there; below 512, where
// NFS and others of bindresvport(3) take none for their connections; and IANA assigns it to no service.
const Address = "127.0.0.1:334"

// URL is how hosts.toml names the own host.
const URL = "http://" + Address

// Is returns whether a host of a registry, as containerd's parser reads it, is the own host. host has its port.
func Is(scheme, host string) bool { return scheme == "http" && host == Address }

// PositionIn returns where the own host is among the hosts of a registry: their URLs without a path, in the order in
// which containerd asks. Before all others it is the Gate, after any other a Fallback.
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

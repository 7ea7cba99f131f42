// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path"
	"strings"
)

// certsD is containerd's registry configuration directory, below Root.
const certsD = "etc/containerd/certs.d"

// WriteHosts writes certs.d/HOST/hosts.toml: images of host (any name, for example "registry.suse.com") come from the
// registries, in this order. containerd reads the file at every pull.
func (n *Node) WriteHosts(host string, registries ...*Registry) {
	n.tb.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "server = %q\n", registries[len(registries)-1].URL())
	for _, r := range registries {
		fmt.Fprintf(&text, "\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", r.URL())
		if r.CA != "" {
			fmt.Fprintf(&text, "  ca = %q\n", r.CA)
		}
	}
	n.WriteFile(path.Join(certsD, host, "hosts.toml"), text.String())
}

// URL returns the registry's URL for clients, without a path.
func (r *Registry) URL() string {
	if r.CA != "" {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

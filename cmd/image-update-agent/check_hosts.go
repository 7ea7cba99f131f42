// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// checkHosts names the hosts.toml files that containerd does not follow. version
// is containerd's; empty where it is not known.
func checkHosts(dirs []hosts.Dir, version string) []finding {
	const check = "registry hosts"
	const ignored = "containerd %s ignores the whole file, and asks upstream"
	is16 := strings.HasPrefix(strings.TrimPrefix(version, "v"), "1.6.")
	var out []finding
	for _, d := range dirs {
		file := filepath.Join(d.Path, "hosts.toml")
		switch {
		case d.Unparsed != nil:
			out = append(out, fail(check, fmt.Errorf("%s: %w: "+ignored, file, d.Unparsed, version),
				"correct the file; containerd reads it again at the next pull"))
		case d.Err != nil:
			out = append(out, fail(check, fmt.Errorf("%s: %w: nothing can be pulled", file, d.Err),
				"correct the path in the file, or put the certificate there"))
		case !d.HostTable && (d.Server != "" || d.Authorities) && is16:
			out = append(out, fail(check, fmt.Errorf("%s: no [host] table: "+ignored, file, version),
				"add a line with [host] at its end"))
		}
	}
	if len(out) > 0 {
		return out
	}
	if len(dirs) == 0 {
		return []finding{ok(check, "no hosts.toml: all images come from their own registries")}
	}
	return []finding{ok(check, fmt.Sprintf("%d hosts.toml", len(dirs)))}
}

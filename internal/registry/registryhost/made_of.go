// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"context"
	"fmt"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// madeOf refuses to write a hosts.toml that k3s or RKE2 would overwrite, and returns the lines that make them name the
// local registry: the current hosts of the registry, in order, and the local registry first or last. The registry
// itself, which both put after all endpoints, is named only if the local registry must follow it.
func (r Registries) madeOf(ctx context.Context, registry string, position localregistry.Position) error {
	dir, err := hosts.FindDir(r.Dirs, registry)
	if err != nil {
		return err
	}
	order, err := hosts.Order(ctx, dir, registry)
	if err != nil {
		return &RefusedError{dir, err.Error()}
	}
	var endpoints []string
	for n, url := range urls(order) {
		isRegistry := n == len(order)-1
		if url != localregistry.URL && (!isRegistry || position == localregistry.Fallback) {
			endpoints = append(endpoints, url)
		}
	}
	if position == localregistry.Gate {
		endpoints = append([]string{localregistry.URL}, endpoints...)
	} else {
		endpoints = append(endpoints, localregistry.URL)
	}
	var lines strings.Builder
	fmt.Fprintf(&lines, "mirrors:\n  %s:\n    endpoint:\n", registry)
	for _, e := range endpoints {
		fmt.Fprintf(&lines, "    - %q\n", outside.Mask(e))
	}
	return &RefusedError{r.MadeOf, "k3s and RKE2 write the hosts.toml files from it at each start: add this to what it " +
		"has for " + registry + ":\n" + lines.String() + "then restart k3s or rke2 and enable again, so that " +
		"the agent remembers it"}
}

// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// madeOf refuses to write a hosts.toml that k3s or RKE2 would overwrite. Its *MadeOfError has the lines that make them
// name the local registry: the current hosts of the registry, in order, and the local registry first or last. The registry
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
	return &MadeOfError{File: r.MadeOf, Registry: registry, Lines: lines.String()}
}

// MadeOfError is a hosts.toml that the agent must not write, because k3s or RKE2 writes it from File at each start.
type MadeOfError struct {
	File, Registry string
	Lines          string // what File needs, so that the hosts.toml names the local registry
}

func (e *MadeOfError) Error() string {
	return e.File + ": k3s and RKE2 write the hosts.toml files from it at each start: add this to what it has for " +
		e.Registry + ":\n" + e.Lines + "then restart k3s or rke2 and enable again, so that the agent remembers it"
}

// Is reports whether target is release.ErrHeld.
func (e *MadeOfError) Is(target error) bool { return target == release.ErrHeld }

// Print writes for people what to add to the file.
func (e *MadeOfError) Print(out, said io.Writer) {
	fmt.Fprint(out, e.Lines)
	fmt.Fprintf(said, "next: add this to what %s has for %s, restart k3s or rke2, and enable again with --write, so that "+
		"the agent remembers it\n", e.File, e.Registry)
}

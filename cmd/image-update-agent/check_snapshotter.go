// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/images"
)

// snapshotters are what is said of the snapshotter, by whom.
type snapshotters struct {
	configured string // containerd.snapshotter
	cri        string
	criErr     error
	server     images.Server
}

// inUse is the one that staging unpacks for; empty: nobody says.
func (s snapshotters) inUse() string {
	if s.configured != "" {
		return s.configured
	}
	return s.cri
}

func (s snapshotters) check() finding {
	const check = "snapshotter"
	used := s.inUse()
	if used == "" {
		return fail(check, s.criErr,
			"set containerd.snapshotter to the one that containerd's CRI plugin is configured for")
	}
	if _, there := s.server.Snapshotters[used]; !there {
		return fail(check, fmt.Errorf("%s: containerd has not loaded it; it has %s",
			used, strings.Join(slices.Sorted(maps.Keys(s.server.Snapshotters)), ", ")),
			"see why in containerd's log (journalctl -u containerd | grep snapshotter), or correct containerd.snapshotter")
	}
	switch {
	case s.configured == "":
		return ok(check, s.cri+", as CRI says")
	case s.criErr != nil:
		return warn(check, fmt.Sprintf("%s, as configured; %v", s.configured, s.criErr),
			"compare containerd.snapshotter with containerd's configuration of CRI: with another one, images are unpacked twice")
	case s.configured != s.cri:
		return fail(check, fmt.Errorf("%s is configured, and CRI uses %s: what is staged is unpacked again for it",
			s.configured, s.cri), "remove containerd.snapshotter from the configuration: the agent then uses what CRI says")
	default:
		return ok(check, s.cri+", as configured and as CRI says")
	}
}

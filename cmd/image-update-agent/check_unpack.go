// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/images"
)

// rebase is the capability of snapshotters that take layers in any order
// (containerd's core/snapshots.RebaseCap, 2.2).
const rebase = "rebase"

// What faster unpacking brings; docs/dev/performance.md has how it was measured.
const (
	gainDecompress = "with igzip a large image was staged in 3.7 s instead of 4.5"
	gainParallel   = "it matters for what was not staged, as at a node's first start"
)

// decompressors are the programs that containerd uses for gzip where they are on
// its PATH, the first it finds, and the variables that turn them off
// (pkg/archive/compression). containerd 1 knows no igzip.
var decompressors = []struct {
	program, off string
	since        int // containerd's major version
}{
	{"igzip", "CONTAINERD_DISABLE_IGZIP", 2},
	{"unpigz", "CONTAINERD_DISABLE_PIGZ", 1},
}

// checkDecompression tells what containerd unpacks gzip with. look finds a program
// on its PATH; it is asked for nothing that its environment turns off.
func checkDecompression(version string, environment map[string]string, look func(program string) string) finding {
	const check = "decompression"
	major, _ := majorMinor(version)
	var known []string
	for _, d := range decompressors {
		off, err := strconv.ParseBool(environment[d.off])
		if major < d.since || err == nil && off {
			continue
		}
		if found := look(d.program); found != "" {
			return ok(check, "containerd uses "+found)
		}
		known = append(known, d.program)
	}
	if len(known) == 0 {
		return ok(check, "containerd's own: its environment turns other programs off")
	}
	packages := "unpigz (package pigz)"
	if known[0] == "igzip" {
		packages = "igzip (package isa-l or isal), the fastest, or unpigz (package pigz)"
	}
	return advise(check, fmt.Sprintf("containerd's own: no %s in its PATH (%s); %s",
		strings.Join(known, " or "), environment["PATH"], gainDecompress),
		"install "+packages+", then systemctl restart containerd: it looks once. Containers go on running")
}

// checkParallel tells whether the server can unpack the layers of an image side
// by side. Staging asks for it with each pull; the server's own pulls, which are
// CRI's, go by its configuration: unpacks is what that says, 0: nothing.
func checkParallel(server images.Server, snapshotter string, unpacks int) finding {
	const check = "parallel unpacking"
	switch {
	case !slices.Contains(server.Snapshotters[snapshotter], rebase):
		return ok(check, fmt.Sprintf("containerd %s with %s unpacks the layers of an image one after another "+
			"(overlayfs of 2.2 and later need not)", server.Version, snapshotter))
	case unpacks > 1:
		return ok(check, fmt.Sprintf("when staged, and %d layers at once in kubelet's own pulls", unpacks))
	default:
		return advise(check, "layers are unpacked side by side when staged, but not in kubelet's own pulls: containerd "+
			server.Version+" is not told to; "+gainParallel,
			"in /etc/containerd/config.toml (version = 3) set max_concurrent_unpacks = 4 below "+
				`[plugins."io.containerd.transfer.v1.local"], then systemctl restart containerd. Containers go on running`)
	}
}

// majorMinor reads the numbers of a version, "v2.4.2" or "1.6.20~ds1"; zeros where
// there are none.
func majorMinor(version string) (major, minor int) {
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &minor); err != nil {
		return 0, 0
	}
	return major, minor
}

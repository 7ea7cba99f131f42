// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/preview"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// noteUnparsedHosts notes of each image that containerd cannot parse the hosts.toml of its registry.
func noteUnparsedHosts(ctx context.Context, certsDirs []string, images []preview.Image) {
	unparsed := map[string]error{} // by directory
	for _, dir := range hosts.Dirs(ctx, certsDirs) {
		unparsed[dir.Path] = dir.Unparsed
	}
	for n := range images {
		registry, _, _ := strings.Cut(images[n].Repository, "/")
		dir, err := hosts.FindDir(certsDirs, registry)
		if why := unparsed[dir]; err == nil && registry != "" && why != nil {
			images[n].Notes = append(images[n].Notes, fmt.Sprintf("%s: %v: containerd ignores the file and asks %s itself",
				filepath.Join(dir, "hosts.toml"), why, registry))
		}
	}
}

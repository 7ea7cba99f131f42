// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// RunsTarget tells what a container runs as a digest that a registry knows, and
// whether that is the target. The config digest is the surest proof: CRI shows
// it of every container, and a manifest that differs in nothing else is the
// same image.
func RunsTarget(c *Container, target release.Release, held []HeldImage) (d digest.Digest, same bool) {
	if c == nil || c.Image == "" {
		return "", false
	}
	if slices.Contains(c.Digests, target.Digest) {
		return target.Digest, true
	}
	d = DigestOf(c, held)
	switch {
	case d != "" && d == target.Digest:
		return d, true
	case target.Config == "" || c.Image != target.Config:
		return d, false
	case d == "":
		return target.Digest, true
	}
	return d, true
}

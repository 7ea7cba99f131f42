// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// RunsTarget returns the registry digest of a container's image, and whether it is the target's. Manifests with the
// same config digest, which CRI shows for each container, are the same image.
func (x HeldIndex) RunsTarget(c *Container, target release.Release) (d digest.Digest, same bool) {
	if c == nil || c.Image == "" {
		return "", false
	}
	if slices.Contains(c.Digests, target.Digest) {
		return target.Digest, true
	}
	d = x.DigestOf(c)
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

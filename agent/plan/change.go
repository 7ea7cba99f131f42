// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// changeOf says what target changes against what runs. Digests decide; tags
// only name the size of it. same: the image that runs is the target's; known:
// something is known to run, or to have run last.
func changeOf(disk release.Reference, target release.Release, known, same bool, d tags.Dialect) string {
	if disk.Repository == "" {
		return "" // no pod yet: nothing to change
	}
	if disk.Repository == target.Repository && disk.Tag == target.Tag {
		if known && !same {
			return tags.Rebuild.String()
		}
		return ""
	}
	if same {
		return ChangeConvert
	}
	from, errF := d.Parse(disk.Tag)
	to, errT := d.Parse(target.Tag)
	if errF != nil || errT != nil || from.HasV() != to.HasV() {
		// Two worlds: nobody can say how far apart they are, so the largest.
		return tags.Major.String()
	}
	switch c := tags.ChangeBetween(from, to); {
	case c == tags.Lower:
		return tags.Major.String() // asked for by a rewrite or a value: the admin should look twice
	case c > tags.Same:
		return c.String()
	case !known:
		return ChangeConvert // nothing is known to run: only the name changes
	case from.Form() == to.Form() || (from.Rev() != "" && from.Rev() == to.Rev()):
		return tags.Rebuild.String() // another name for the same revision
	default:
		return tags.Revision.String() // the short tag moved on under the pod
	}
}

// runs tells what a container runs as a digest that a registry knows, and
// whether that is the target. The config digest is the surest proof: CRI shows
// it of every container, and a manifest that differs in nothing else is the
// same image.
func runs(c *node.Container, target release.Release, held []node.HeldImage) (d digest.Digest, same bool) {
	if c == nil || c.Image == "" {
		return "", false
	}
	if slices.Contains(c.Digests, target.Digest) {
		return target.Digest, true
	}
	d = node.DigestOf(c, held)
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

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/tags"
)

// changeOf says what target changes against what runs. Digests decide; tags
// only name the size of it. same: the image that runs is the target's; known:
// something is known to run, or to have run last.
func changeOf(disk Reference, target Release, known, same bool, d tags.Dialect) string {
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
	case c >= tags.Revision:
		return c.String()
	case from.Form() == to.Form() || known:
		return tags.Revision.String() // the short tag moved on under the pod
	default:
		return ChangeConvert // nothing is known to run: only the name changes
	}
}

// runs tells what a container runs as a digest that a registry knows, and
// whether that is the target. The config digest is the surest proof: CRI shows
// it of every container, and a manifest that differs in nothing else is the
// same image.
func runs(c *Container, target Release, held []HeldImage) (d digest.Digest, same bool) {
	if c == nil || c.Image == "" {
		return "", false
	}
	for _, known := range c.Digests {
		if known == target.Digest {
			return known, true
		}
	}
	if target.Config != "" && c.Image == target.Config {
		return target.Digest, true
	}
	return digestOf(c, held), false
}

// digestOf is the digest of what a container runs: as CRI has it, else through
// the image store, which may hold the image under a name that CRI has no
// repository digest for. Empty where neither knows.
func digestOf(c *Container, held []HeldImage) digest.Digest {
	if len(c.Digests) > 0 {
		return c.Digests[0]
	}
	for _, h := range held {
		if h.Config != "" && h.Config == c.Image {
			return h.Digest
		}
	}
	return ""
}

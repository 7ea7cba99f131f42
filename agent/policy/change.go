// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// ChangeOf says what target changes against what runs. Digests decide; tags
// only name the size of it. same: the image that runs is the target's; known:
// something is known to run, or to have run last.
func ChangeOf(disk release.Reference, target release.Release, known, same bool, d tags.Dialect) string {
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

// The changes that tags alone do not tell. The others are tags.Change's words.
const (
	// ChangeConvert brings a pod manifest to intermediate tag and pull policy;
	// the software stays the same.
	ChangeConvert = "convert"
	// ChangeRemove takes away a pod manifest of ours whose template is gone.
	ChangeRemove = "remove"
)

// ChangeRank orders the changes; the largest of its images is a pod's.
var ChangeRank = map[string]int{
	"": 0, ChangeConvert: 1, "rebuild": 2, "revision": 3, "patch": 4, "minor": 5, "major": 6, ChangeRemove: 7,
}

// IsMinor reports whether a change is a minor version's at least.
func IsMinor(change string) bool { return ChangeRank[change] >= ChangeRank[tags.Minor.String()] }

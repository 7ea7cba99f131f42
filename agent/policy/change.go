// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// ChangeOf returns the change from the running release to target. Digests decide whether there is a change, tags how
// large it is. same: the target's image runs; known: the running or last release is known.
func ChangeOf(disk release.Reference, target release.Release, known, same bool, s tags.Scheme) string {
	if disk.Repository == "" {
		return "" // no pod yet: nothing to change
	}
	disk = disk.Tagged() // kubelet pulls latest for a reference without a tag
	if disk.Repository == target.Repository && disk.Tag == target.Tag {
		if known && !same {
			return tags.Rebuild.String()
		}
		return ""
	}
	if same {
		return ChangeConvert
	}
	from, errF := s.Parse(disk.Tag)
	to, errT := s.Parse(target.Tag)
	if errF != nil || errT != nil || tags.ChangeBetween(from, to) == tags.Unrelated {
		return tags.Major.String()
	}
	switch c := tags.ChangeBetween(from, to); {
	case c == tags.Lower:
		return tags.Major.String() // by a rewrite or a value: the admin must check it
	case c > tags.Same:
		return c.String()
	case !known:
		return ChangeConvert // only the name changes
	case from.Form() == to.Form() || (from.Rev() != "" && from.Rev() == to.Rev()):
		return tags.Rebuild.String() // another name for the same revision
	default:
		return tags.Revision.String() // the short tag was moved to another revision
	}
}

// The changes in addition to those of tags.Change.
const (
	// ChangeConvert changes the tag's form or the pull policy, but not the software.
	ChangeConvert = "convert"
	// ChangeRemove removes a pod manifest of the agent whose template is gone.
	ChangeRemove = "remove"
)

// ChangeRank orders the changes. A pod's change is the largest of its images.
var ChangeRank = map[string]int{
	"": 0, ChangeConvert: 1, "rebuild": 2, "revision": 3, "patch": 4, "minor": 5, "major": 6, ChangeRemove: 7,
}

// IsMinor reports whether a change is at least minor.
func IsMinor(change string) bool { return ChangeRank[change] >= ChangeRank[tags.Minor.String()] }

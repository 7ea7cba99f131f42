// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"fmt"
	"slices"
	"strings"
)

// Change is what one tag changes against another, as far as names tell it. From
// Same to Major the values are ordered, so that a policy is a largest Change.
// The negative values stand outside that order: no policy allows them.
type Change int

const (
	// Unrelated means that one tag has a v and the other not, or one is no tag.
	Unrelated Change = iota - 2
	// Lower means that the second tag is older by name.
	Lower
	// Same means that names show no difference; as a policy it is "none". Behind
	// one floating tag there may still be a new digest: a rebuild.
	Same
	// Rebuild is a higher build of one revision.
	Rebuild
	// Revision is a higher image revision of one application version.
	Revision
	// Patch is a higher third or later number of the application version.
	Patch
	// Minor is a higher second number.
	Minor
	// Major is a higher first number.
	Major
)

// ChangeBetween tells what to changes against from. The first number of the
// application version that differs decides: the first is major, the second
// minor, each later one patch; a missing number is lower, so 13 to 13.1 is
// minor and 3.2 to 3.2.1 patch.
//
// Revisions are compared only where both tags have one, and so are builds: a
// tag that does not tell its revision neither rises nor falls by one that does.
// 2.6.2 to 2.6.2-rev1 is Same, although [Compare] has to rank them.
func ChangeBetween(from, to Tag) Change {
	if from.IsZero() || to.IsZero() || from.HasV() != to.HasV() {
		return Unrelated
	}
	order, index := compareDotted(from.numbers(), to.numbers())
	change := max(Major-Change(index), Patch)
	if order == 0 && from.revStart > 0 && to.revStart > 0 {
		order, change = compareNumber(from.Rev(), to.Rev()), Revision
	}
	if order == 0 && from.buildStart > 0 && to.buildStart > 0 {
		order, _ = compareDotted(from.Build(), to.Build())
		change = Rebuild
	}
	switch {
	case order == 0:
		return Same
	case order > 0:
		return Lower
	}
	return change
}

// changeNames are the names of the changes, from Unrelated.
var changeNames = [...]string{"unrelated", "lower", "none", "rebuild", "revision", "patch", "minor", "major"}

// String gives "none" for Same, which is how a policy spells it, and the name
// in lower case for the others.
func (c Change) String() string {
	if c < Unrelated || c > Major {
		return fmt.Sprintf("change(%d)", int(c))
	}
	return changeNames[c-Unrelated]
}

// ParseChange reads a policy: none, rebuild, revision, patch, minor or major.
// It refuses "lower" and "unrelated", which no policy can be.
func ParseChange(name string) (Change, error) { return parseChange(name, Same) }

func parseChange(name string, lowest Change) (Change, error) {
	known := changeNames[lowest-Unrelated:]
	i := slices.Index(known, name)
	if i < 0 {
		return Same, fmt.Errorf("tags: change %q: unknown, one of %s", name, strings.Join(known, ", "))
	}
	return lowest + Change(i), nil
}

// MarshalText writes what [Change.String] gives; it refuses an unknown value.
func (c Change) MarshalText() ([]byte, error) {
	if c < Unrelated || c > Major {
		return nil, fmt.Errorf("tags: %v: unknown", c)
	}
	return []byte(c.String()), nil
}

// UnmarshalText reads back what [Change.MarshalText] wrote, "lower" and
// "unrelated" included. A policy is to be read with [ParseChange].
func (c *Change) UnmarshalText(text []byte) error {
	change, err := parseChange(string(text), Unrelated)
	if err == nil {
		*c = change
	}
	return err
}

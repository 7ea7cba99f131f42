// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"fmt"
	"slices"
	"strings"
)

// Change is the difference between two tags as far as their names show it. The values from Same to Major are ordered,
// so a policy is the largest Change it allows. Negative values are outside that order: no policy allows them.
type Change int

const (
	// Unrelated means that the tags differ in more than numbers, for example in a v or a suffix, or that one is not a
	// tag.
	Unrelated Change = iota - 2
	// Lower means that the second tag is older by name.
	Lower
	// Same means that the names show no difference; as a policy it is "none". A floating tag may still have a new
	// digest: a rebuild.
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

// ChangeBetween returns the change from one tag to another. The first number of the application version that differs
// decides: the first is major, the second is minor, each later one is patch. A missing number is lower, so 13 to 13.1
// is minor and 3.2 to 3.2.1 patch. Between pre-releases of one version, and from them to their release, the change is
// patch. In a scheme of dates the year is major, the month minor.
//
// Revisions and builds are compared only where both tags have one. 2.6.2 to 2.6.2-rev1 is therefore Same, although
// [Compare] has to rank them.
func ChangeBetween(from, to Tag) Change {
	if from.IsZero() || to.IsZero() || !sameName(from, to) {
		return Unrelated
	}
	order, index := compareDotted(from.numbers(), to.numbers())
	if from.isDate && to.isDate {
		index = indexInDate(from.numbers(), to.numbers())
	}
	change := max(Major-Change(index), Patch)
	if order == 0 {
		order, change = comparePre(from.pre.of(from.raw), to.pre.of(to.raw)), Patch
	}
	if order == 0 && from.rev.is() && to.rev.is() {
		order, _ = compareDotted(from.Rev(), to.Rev())
		change = Revision
	}
	if order == 0 && from.build.is() && to.build.is() {
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

// indexInDate returns the index of the first difference between two dates in digits alone: year, month or the rest.
func indexInDate(from, to string) int {
	const year, month = len("2006"), len("200601")
	switch {
	case from[:year] != to[:year]:
		return 0
	case from[:month] != to[:month]:
		return 1
	}
	return 2
}

// changeNames are the names of the changes, from Unrelated.
var changeNames = [...]string{"unrelated", "lower", "none", "rebuild", "revision", "patch", "minor", "major"}

// String returns "none" for Same, as a policy spells it, and the lower-case name of every other change.
func (c Change) String() string {
	if c < Unrelated || c > Major {
		return fmt.Sprintf("change(%d)", int(c))
	}
	return changeNames[c-Unrelated]
}

// ParseChange reads a policy: none, rebuild, revision, patch, minor or major. It rejects "lower" and "unrelated", which
// are not policies.
func ParseChange(name string) (Change, error) { return parseChange(name, Same) }

func parseChange(name string, lowest Change) (Change, error) {
	known := changeNames[lowest-Unrelated:]
	i := slices.Index(known, name)
	if i < 0 {
		return Same, fmt.Errorf("tags: change %q: unknown, one of %s", name, strings.Join(known, ", "))
	}
	return lowest + Change(i), nil
}

// MarshalText returns the text of [Change.String]; it rejects an unknown value.
func (c Change) MarshalText() ([]byte, error) {
	if c < Unrelated || c > Major {
		return nil, fmt.Errorf("tags: %v: unknown", c)
	}
	return []byte(c.String()), nil
}

// UnmarshalText reads what [Change.MarshalText] wrote, including "lower" and "unrelated". Use [ParseChange] to read a
// policy.
func (c *Change) UnmarshalText(text []byte) error {
	change, err := parseChange(string(text), Unrelated)
	if err == nil {
		*c = change
	}
	return err
}

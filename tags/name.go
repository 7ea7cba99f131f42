// SPDX-License-Identifier: Apache-2.0

package tags

// Name returns the tag with words in place of its numbers, "{version}-alpine" or "v{version}-rke2r{rev}-build{build}":
// the part that stays the same from tag to tag. It has no pre-release. SUSE's three forms have the same name, and so
// have all tags that a pattern reads.
func (t Tag) Name() string {
	if t.IsZero() {
		return ""
	}
	if t.reading != byGeneral {
		return t.raw[t.version.start-t.vLength():t.version.start] + "{version}"
	}
	cuts := t.cuts()
	out, at := "", uint8(0)
	for n, word := range t.words() {
		if cuts[n].is() {
			out += t.raw[at:cuts[n].start] + word
			at = cuts[n].end
		}
	}
	if t.isWord {
		out += t.pre.of(t.raw)
	}
	return out + t.raw[at:]
}

func (t Tag) vLength() uint8 {
	if t.hasV {
		return 1
	}
	return 0
}

// cuts returns the parts of the tag that do not belong to the name, in order.
func (t Tag) cuts() [3]span {
	version := span{t.version.start, max(t.version.end, t.pre.end)}
	if t.build.is() && t.build.start < t.rev.start {
		return [...]span{version, t.build, t.rev}
	}
	return [...]span{version, t.rev, t.build}
}

func (t Tag) words() [3]string {
	if t.build.is() && t.build.start < t.rev.start {
		return [...]string{"{version}", "{build}", "{rev}"}
	}
	return [...]string{"{version}", "{rev}", "{build}"}
}

// sameName reports whether two tags differ in numbers and pre-releases only.
func sameName(a, b Tag) bool {
	switch {
	case a.hasV != b.hasV:
		return false
	case a.reading >= byPattern || b.reading >= byPattern, a.reading == bySUSE && b.reading == bySUSE:
		return true
	case a.isSUSE() && a.rev.is(), b.isSUSE() && b.rev.is():
		return false
	case (a.isWord || b.isWord) && a.pre.of(a.raw) != b.pre.of(b.raw):
		return false
	case a.rev.is() != b.rev.is() || a.build.is() != b.build.is():
		return false
	}
	cutsA, cutsB := a.cuts(), b.cuts()
	atA, atB := uint8(0), uint8(0)
	for n := range cutsA {
		if cutsA[n].is() != cutsB[n].is() {
			return false
		}
		if !cutsA[n].is() {
			continue
		}
		if a.raw[atA:cutsA[n].start] != b.raw[atB:cutsB[n].start] {
			return false
		}
		atA, atB = cutsA[n].end, cutsB[n].end
	}
	return a.raw[atA:] == b.raw[atB:]
}

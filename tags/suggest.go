// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"errors"
	"regexp"
	"strings"
)

// number matches a dotted number in a tag.
var number = regexp.MustCompile(`[0-9]+(?:\.[0-9]+)*`)

// distribution matches a release of Debian or Ubuntu, which tags name as the base of the image.
var distribution = regexp.MustCompile(
	`stretch|buster|bullseye|bookworm|trixie|forky|xenial|bionic|focal|jammy|noble`)

// PatternBetween returns a pattern under which the second tag follows the first. It returns "" if none is known, and
// always for tags of different precision.
func PatternBetween(from, to string) string {
	a, errA := Parse(from)
	b, errB := Parse(to)
	if errA != nil || errB != nil || a.isSUSE() && a.rev.is() || b.isSUSE() && b.rev.is() {
		return Scheme{}.checked(PatternFor(to), from, to)
	}
	headA, headB := a.raw[:a.version.start-a.vLength()], b.raw[:b.version.start-b.vLength()]
	if headA != headB {
		return ""
	}
	head := "^" + regexp.QuoteMeta(headA)
	if a.hasV != b.hasV {
		head += "v?"
	}
	for _, ends := range patternsOfEnds(a, b) {
		if pattern := (Scheme{}).checked(head+"(?P<version>.*)"+ends+"$", from, to); pattern != "" {
			return pattern
		}
	}
	return ""
}

func (t Tag) versionEnd() int { return int(max(t.version.end, t.pre.end)) }

// patternsOfEnds returns patterns for the texts after the versions of two tags, with groups for revision and build.
// Another number in which they differ becomes the revision if they have none, or in the last pattern, which has the
// revision as the build; else the pattern accepts any number there. Releases of a distribution become alternatives.
// There is none for other words, which are variants of the image.
func patternsOfEnds(from, to Tag) []string {
	a, b := from.raw[from.versionEnd():], to.raw[to.versionEnd():]
	wordsA, wordsB := number.Split(a, -1), number.Split(b, -1)
	if strings.Join(wordsA, "#") != strings.Join(wordsB, "#") {
		return patternOfDistributions(a, b)
	}
	out := []string{patternOfEnds(from, to, to.rev.is())}
	if to.rev.is() && !to.build.is() {
		to.rev, to.build = span{}, to.rev
		out = append(out, patternOfEnds(from, to, false))
	}
	return out
}

// patternOfEnds returns a pattern for texts with the same words after the versions.
func patternOfEnds(from, to Tag, hasRev bool) string {
	a, b := from.raw[from.versionEnd():], to.raw[to.versionEnd():]
	words, numbersA := number.Split(a, -1), number.FindAllString(a, -1)
	out := regexp.QuoteMeta(words[0])
	for n, at := range number.FindAllStringIndex(b, -1) {
		switch start := to.versionEnd() + at[0]; {
		case to.rev.is() && start == int(to.rev.start):
			out += "(?P<rev>[0-9.]+)"
		case to.build.is() && start == int(to.build.start):
			out += "(?P<build>[0-9.]+)"
		case numbersA[n] == b[at[0]:at[1]]:
			out += regexp.QuoteMeta(numbersA[n])
		case !hasRev:
			out, hasRev = out+"(?P<rev>[0-9.]+)", true
		default:
			out += "[0-9.]+"
		}
		out += regexp.QuoteMeta(words[n+1])
	}
	return out
}

func patternOfDistributions(a, b string) []string {
	from, to := distribution.FindStringIndex(a), distribution.FindStringIndex(b)
	if from == nil || to == nil || a[:from[0]] != b[:to[0]] || a[from[1]:] != b[to[1]:] {
		return nil
	}
	names := "(?:" + a[from[0]:from[1]] + "|" + b[to[0]:to[1]] + ")"
	return []string{regexp.QuoteMeta(a[:from[0]]) + names + regexp.QuoteMeta(a[from[1]:])}
}

// patternBetween returns a pattern that, beside the other settings of the scheme, makes to follow from; "" if none is
// known.
func (s Scheme) patternBetween(from, to string) string {
	return s.checked(PatternBetween(from, to), from, to)
}

// checked returns pattern if, in place of the scheme's, it makes to follow from, else "".
func (s Scheme) checked(pattern, from, to string) string {
	s, err := NewScheme(pattern, s.versions, s.prereleases)
	if pattern == "" || err != nil {
		return ""
	}
	a, errA := s.Parse(from)
	b, errB := s.Parse(to)
	if errA != nil || errB != nil || !InLine(a, b) || ChangeBetween(a, b) <= Same {
		return ""
	}
	return pattern
}

// PatternFor returns a pattern that reads a tag which is not read without settings; "" if none is known.
func PatternFor(text string) string {
	if _, err := Parse(text); !errors.Is(err, ErrUnrecognized) || Reason(err) == emptyPart {
		return ""
	}
	out, found := "^", false
	for rest := text; rest != ""; {
		n := strings.IndexAny(rest, "-_")
		if n < 0 {
			n = len(rest)
		}
		part, separator := rest[:n], rest[n:min(n+1, len(rest))]
		rest = rest[min(n+1, len(rest)):]
		switch at := number.FindStringIndex(part); {
		case found || isUnordered(part) == holdsHash:
			out += patternOfSuffix(part, out)
		case at == nil || at[0] > 0 && part[0] != 'v' && !strings.Contains(part[at[0]:at[1]], "."):
			out += regexp.QuoteMeta(part)
		default:
			found = true
			out += regexp.QuoteMeta(part[:at[0]]) + "(?P<version>[0-9.]+)" + patternOfRest(part[at[1]:])
		}
		out += regexp.QuoteMeta(separator)
	}
	s, err := NewScheme(out+"$", AnyVersions, false)
	if !found || err != nil {
		return ""
	}
	if _, err = s.Parse(text); err != nil {
		return ""
	}
	return s.Pattern()
}

// patternOfSuffix returns a pattern for a part of a tag that is no version, to follow the pattern before it: any hash,
// any date or long number as the build, any other number alone as the revision, and the rest as it is.
func patternOfSuffix(part, before string) string {
	group := func(name string) string {
		if strings.Contains(before, "(?P<version>") && !strings.Contains(before, "(?P<"+name+">") {
			return "(?P<" + name + ">[0-9]+)"
		}
		return "[0-9]+"
	}
	if isDigits(part) && len(part) < hashDigits {
		return group("rev")
	}
	pieces := strings.Split(part, ".")
	for n, piece := range pieces {
		switch {
		case isUnordered(piece) == holdsHash:
			pieces[n] = piece[:len(piece)-len(strings.TrimPrefix(piece, "g"))] + "[0-9a-f]+"
		case isDate(piece), isUnordered(piece) == longNumber:
			pieces[n] = group("build")
			before += pieces[n]
		default:
			pieces[n] = regexp.QuoteMeta(piece)
		}
	}
	return strings.Join(pieces, `\.`)
}

// patternOfRest returns a pattern for the text next to a version: a number in it is a revision, as in 8u402.
func patternOfRest(rest string) string {
	at := number.FindStringIndex(rest)
	if at == nil {
		return regexp.QuoteMeta(rest)
	}
	return regexp.QuoteMeta(rest[:at[0]]) + "(?P<rev>[0-9.]+)" + regexp.QuoteMeta(rest[at[1]:])
}

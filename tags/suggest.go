// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"errors"
	"regexp"
	"slices"
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
		for _, pattern := range proposals(to) {
			if pattern = (Scheme{}).checked(pattern, from, to); pattern != "" {
				return pattern
			}
		}
		return ""
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

// PatternFor returns a pattern that reads a tag which is not read without settings, and that orders it and another tag
// of the list; "" if none is known.
func PatternFor(text string, list []string) string {
	pattern, _ := proposed(text, list)
	return pattern
}

// OrderedBeside returns another tag of a list that PatternFor's pattern orders; "" if there is none.
func OrderedBeside(text string, list []string) string {
	_, other := proposed(text, list)
	return other
}

func proposed(text string, list []string) (pattern, other string) {
	for _, pattern := range proposals(text) {
		s, err := NewScheme(pattern, AnyVersions, false)
		if err != nil {
			continue
		}
		from, err := s.Parse(text)
		if err != nil {
			continue
		}
		for _, other := range list {
			to, err := s.Parse(other)
			if change := ChangeBetween(from, to); err == nil && InLine(from, to) && change != Same && change != Unrelated {
				return pattern, other
			}
		}
	}
	return "", ""
}

// MayPropose reports whether PatternFor could know a pattern for a tag, depending on the list.
func MayPropose(text string) bool { return len(proposals(text)) > 0 }

// laterBuilds returns what a later build of a tag could be named, to try a pattern without a list: other hashes, and
// each last digit of a number one higher or lower; first that of a number alone.
func laterBuilds(text string) []string {
	var out []string
	for n := range 4 {
		later, step := []byte(text), 1-2*(n%2)
		for start := 0; start < len(text); {
			end := start
			for end < len(text) && !isSeparator(text[end]) {
				end++
			}
			part := text[start:end]
			hash := isUnordered(part) == holdsHash
			for i := start; i < end; i++ {
				isLast := i == end-1 && (n > 1 || isDigits(part) || isTime(part))
				if isDigit(text[i]) && (hash || isLast) {
					later[i] = '0' + byte((int(text[i]-'0')+10+step)%10)
				}
			}
			start = end + 1
		}
		out = append(out, string(later))
	}
	return out
}

// proposals returns patterns that may read a tag which is not read without settings: as it is except for dates, hashes
// and numbers alone; then with any number in other words; then with a number in a word as the version.
func proposals(text string) []string {
	_, err := Parse(text)
	if !errors.Is(err, ErrUnrecognized) || Reason(err) == emptyPart || strings.HasPrefix(text, "sha256-") {
		return nil
	}
	var out []string
	for _, p := range []proposal{{}, {anyNumbers: true}, {inWords: true}} {
		if p.read(text); p.version {
			out = append(out, p.out+"$")
		}
	}
	return out
}

// proposal is a pattern that is being made from a tag.
type proposal struct {
	anyNumbers, inWords bool
	out                 string
	version, rev, build bool
}

func (p *proposal) read(text string) {
	p.out = "^"
	for i := 0; i < len(text); {
		if isSeparator(text[i]) {
			p.out += regexp.QuoteMeta(text[i : i+1])
			i++
			continue
		}
		if end := scanISODate(text, i); end > 0 {
			p.readISODate(text[i:end])
			i = end
			continue
		}
		end := partEnd(text, i)
		if !p.version {
			i = p.readBegin(text, i, end)
			continue
		}
		// A time after a date belongs to it.
		after := min(end+1, len(text))
		if next := partEnd(text, after); isDate(text[i:end]) && isTimeOfDay(text[after:next]) {
			p.out += p.group(&p.build, groupBuild, "[0-9]+"+regexp.QuoteMeta(text[end:end+1])+"[0-9]+")
			i = next
			continue
		}
		p.readPart(text[i:end])
		i = end
	}
}

func isTimeOfDay(text string) bool { return isDigits(text) && (len(text) == 4 || len(text) == 6) }

// isTime reports whether a part is a date and a time of day, as 20250614T1011.
func isTime(part string) bool {
	date, clock, is := strings.Cut(part, "T")
	return is && isDate(date) && isTimeOfDay(clock)
}

// group returns a group around a pattern, the first time; then the pattern alone. A revision counts before the build,
// so there is none after it.
func (p *proposal) group(seen *bool, name, pattern string) string {
	if *seen || name == groupRev && p.build {
		return pattern
	}
	*seen = true
	return "(?P<" + name + ">" + pattern + ")"
}

func (p *proposal) readISODate(date string) {
	pattern := "[0-9]{4}-[0-9]{2}-[0-9]{2}"
	if strings.Contains(date, "T") {
		pattern += "T[0-9]{2}-[0-9]{2}-[0-9]{2}"
	}
	if !p.version {
		p.out += p.group(&p.version, groupVersion, pattern)
	} else {
		p.out += p.group(&p.build, groupBuild, pattern)
	}
}

// readBegin reads a part before the version, or that has it. It returns its end, or that of the pre-release.
func (p *proposal) readBegin(text string, start, end int) int {
	part := text[start:end]
	at := number.FindStringIndex(part)
	switch {
	case isUnordered(part) == holdsHash:
		p.readPart(part)
		return end
	case at == nil, at[0] > 0 && part[0] != 'v' && !p.inWords && !strings.Contains(part[at[0]:at[1]], "."):
		p.out += regexp.QuoteMeta(part)
		return end
	}
	p.out += regexp.QuoteMeta(part[:at[0]]) + p.group(&p.version, groupVersion, "[0-9.]+")
	after := start + at[1]
	if pre, isWord := scanPre(text, after, strings.Contains(part, ".")); pre > 0 && !isWord {
		word := strings.TrimLeft(text[after:pre], "-_.")
		p.out += regexp.QuoteMeta(text[after:pre-len(word)]) + "(?P<pre>[A-Za-z]+[.-]?[0-9.]+)"
		return pre
	}
	if rest := part[at[1]:]; rest != "" { // a number in it is a revision, as in 8u402
		p.out += p.words(rest, func() string { return p.group(&p.rev, groupRev, "[0-9.]+") })
	}
	return end
}

// words returns a pattern for a text, with patterns in place of its numbers.
func (p *proposal) words(text string, ofNumber func() string) (out string) {
	last := 0
	for _, at := range number.FindAllStringIndex(text, -1) {
		out += regexp.QuoteMeta(text[last:at[0]]) + ofNumber()
		last = at[1]
	}
	return out + regexp.QuoteMeta(text[last:])
}

// readPart reads a part after the version: any hash, any date or long number as the build, any other number alone as
// the revision.
func (p *proposal) readPart(part string) {
	if isDotted(part) && strings.Contains(part, ".") {
		first, _, _ := strings.Cut(part, ".")
		if len(first) == stampDigits || unorderedPart(part) == longNumber || hasDate(part) {
			p.out += p.group(&p.build, groupBuild, "[0-9.]+")
		} else {
			p.out += p.group(&p.rev, groupRev, "[0-9.]+")
		}
		return
	}
	for n, piece := range strings.Split(part, ".") {
		if n > 0 {
			p.out += `\.`
		}
		p.readPiece(piece)
	}
}

func hasDate(dotted string) bool {
	return slices.ContainsFunc(strings.Split(dotted, "."), isDate)
}

func (p *proposal) readPiece(piece string) {
	mark := strings.TrimRight(piece, "0123456789")
	switch {
	case isUnordered(piece) == holdsHash:
		hex := "[0-9a-f]+"
		if strings.ToLower(piece) != piece {
			hex = "[0-9A-Fa-f]+"
		}
		p.out += piece[:len(piece)-len(strings.TrimPrefix(piece, "g"))] + hex
	case isTime(strings.TrimSuffix(piece, "Z")):
		p.out += p.group(&p.build, groupBuild, "[0-9]+T[0-9]+") + strings.Repeat("Z", strings.Count(piece, "Z"))
	case isDate(piece), isUnordered(piece) == longNumber:
		p.out += p.group(&p.build, groupBuild, "[0-9]+")
	case isDigits(piece):
		p.out += p.group(&p.rev, groupRev, "[0-9]+")
	case mark != piece && (slices.Contains(revMarks[:], mark) || slices.Contains(revWords[:], mark)) && !p.build:
		p.out += mark + p.group(&p.rev, groupRev, "[0-9]+")
	case mark != piece && slices.Contains(buildMarks[:], mark):
		p.out += mark + p.group(&p.build, groupBuild, "[0-9]+")
	case p.anyNumbers:
		p.out += p.words(piece, func() string { return "[0-9]+" })
	default:
		p.out += regexp.QuoteMeta(piece)
	}
}

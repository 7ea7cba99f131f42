// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"errors"
	"fmt"
	"math/big"
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
		return Same, fmt.Errorf("tags: change %q: want one of %s", name, strings.Join(known, ", "))
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

// Explanation says how a scheme reads a tag, and which tags an image that follows it can move to.
type Explanation struct {
	Tag  string `json:"tag"`
	Form Class  `json:"form"`
	// Name is the part that stays the same, see [Tag.Name].
	Name    string `json:"name"`
	Version string `json:"version"`
	Pre     string `json:"pre"`
	Rev     string `json:"rev"`
	Build   string `json:"build"`
	Reason  string `json:"reason"` // why the tag cannot be ordered; empty if it can
	// Pattern is the `tags.pattern` that would read the tag; empty if the tag is read or no such pattern is known.
	Pattern string `json:"pattern"`
	// Tags are verdicts on other tags: those of the caller, or examples.
	Tags []Verdict `json:"tags"`
}

// Verdict says whether an image that follows one tag can move to another.
type Verdict struct {
	Tag string `json:"tag"`
	// Updates is the smallest policy that offers the tag; empty if no policy does.
	Updates string `json:"updates"`
	Reason  string `json:"reason"` // why no policy offers it
	// Pattern is the `tags.pattern` that would offer it; empty if none is known.
	Pattern string `json:"pattern"`
}

// Explain explains how a tag is read and judges the others. Without others it judges examples made from the tag.
func (s Scheme) Explain(text string, others ...string) Explanation {
	tag, err := s.Parse(text)
	e := Explanation{Tag: text, Form: classOf(tag, err), Tags: []Verdict{}}
	if err != nil {
		e.Reason = Reason(err)
		if s == (Scheme{}) {
			if len(others) == 0 {
				others = laterBuilds(text)
			}
			e.Pattern = PatternFor(text, others)
		}
		return e
	}
	e.Name, e.Version, e.Pre, e.Rev, e.Build = tag.Name(), tag.App(), tag.Pre(), tag.Rev(), tag.Build()
	if len(others) == 0 {
		others = s.examples(tag)
	}
	for _, other := range others {
		e.Tags = append(e.Tags, s.judge(tag, other))
	}
	return e
}

// judge returns the verdict on a tag for an image that follows from.
func (s Scheme) judge(from Tag, text string) Verdict {
	v := Verdict{Tag: text}
	to, err := s.Parse(text)
	change := ChangeBetween(from, to)
	switch {
	case err != nil && errors.Is(err, ErrMalformed):
		v.Reason = "malformed: " + Reason(err)
	case err != nil:
		v.Reason = Reason(err)
	case !InLine(from, to):
		v.Reason = WhyNot(from, to)
	case change == Lower:
		v.Reason = fmt.Sprintf("lower than %s", from)
	case change == Same && text == from.String():
		v.Updates = Rebuild.String() // the same tag with another digest
	case change == Same:
		v.Reason = fmt.Sprintf("the same numbers as %s", from)
	default:
		v.Updates = change.String()
	}
	if v.Updates == "" && (err != nil || change != Lower && change != Same) {
		v.Pattern = s.patternBetween(from.String(), text)
	}
	return v
}

// examples returns tags close to t: the next one of each kind, and some that cannot follow it.
func (s Scheme) examples(t Tag) []string {
	var out []string
	add := func(text string, ok bool) {
		if ok && ociFault(text) == "" {
			out = append(out, text)
		}
	}
	last := countNumbers(t.numbers()) - 1
	add(t.raw, true)
	add(s.next(t, t.build, countNumbers(t.Build())-1, Rebuild))
	add(s.next(t, t.rev, countNumbers(t.Rev())-1, Revision))
	if t.pre.is() {
		add(t.raw[:t.pre.start]+t.raw[t.pre.end:], true)
	}
	for index := min(last, 2); index >= 0; index-- {
		add(s.next(t, t.version, index, max(Major-Change(index), Patch)))
	}
	higher, ok := s.next(t, t.version, 0, Major)
	if !ok || !isDotted(t.numbers()) {
		return out
	}
	h, _ := s.Parse(higher)
	head, tail := h.raw[:h.version.start], h.raw[max(h.version.end, h.pre.end):]
	if tail == "" {
		tail = "-alpine"
	} else {
		tail = ""
	}
	add(head+h.numbers()+tail, true)
	if h.hasV {
		add(h.raw[:h.version.start-1]+h.raw[h.version.start:], true)
	} else {
		add(head+"v"+h.raw[h.version.start:], true)
	}
	add(h.raw[:h.version.end]+".1"+h.raw[h.version.end:], !t.isSUSE() || !t.rev.is())
	add(h.raw[:h.version.end]+"-rc.1"+h.raw[h.version.end:], !t.pre.is() && (!t.isSUSE() || !t.rev.is()))
	return out
}

// next returns the tag with the next number at index of part, if that makes the given change.
func (s Scheme) next(t Tag, part span, index int, change Change) (text string, ok bool) {
	if !part.is() || index < 0 {
		return "", false
	}
	for _, later := range []string{"0", ""} { // dates have no month 0
		text = t.raw[:part.start] + bumped(part.of(t.raw), index, later) + t.raw[part.end:]
		if tag, err := s.Parse(text); err == nil && InLine(t, tag) && ChangeBetween(t, tag) == change {
			return text, true
		}
	}
	return "", false
}

// bumped increments the number at index, keeping its width, and sets the later numbers to later, unless it is "".
func bumped(dotted string, index int, later string) string {
	var out strings.Builder
	for n := 0; dotted != ""; n++ {
		number, rest := cutNumber(dotted)
		separator := dotted[len(number) : len(dotted)-len(rest)]
		switch {
		case n == index:
			value, _ := new(big.Int).SetString(number, 10)
			number = fmt.Sprintf("%0*d", len(number), value.Add(value, big.NewInt(1)))
		case n > index && later != "":
			number = strings.Repeat("0", len(number)-1) + later
			if len(number) > 1 && dotted[0] != '0' {
				number = later
			}
		}
		out.WriteString(number + separator)
		dotted = rest
	}
	return out.String()
}

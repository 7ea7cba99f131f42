// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

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

// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

// Limits of an advisory.
const (
	// MaxFixes is how many fixes a person names at most. A promotion also has those of the builds that it skips.
	MaxFixes = 64
	maxFix   = 64 // bytes
	// maxAdvisories bounds the advisories of a page, in bytes: the newest releases keep theirs.
	maxAdvisories = 128 << 10
	// maxBrought is how many fixes an advisory has, and how many fixes and notes Between names at most.
	maxBrought = 256
)

// Severity says how much a release matters, in the words of SUSE's and Red Hat's advisories. Empty: nobody has said.
type Severity string

// The severities, the lowest first.
const (
	SeverityLow       Severity = "low"
	SeverityModerate  Severity = "moderate"
	SeverityImportant Severity = "important"
	SeverityCritical  Severity = "critical"
)

// severities are in order; none is the lowest.
func severities() []Severity {
	return []Severity{"", SeverityLow, SeverityModerate, SeverityImportant, SeverityCritical}
}

// Severities returns the four words, the lowest first.
func Severities() []Severity { return severities()[1:] }

// Compare returns a negative number if s is lower than other. An empty one is lower than all.
func (s Severity) Compare(other Severity) int {
	return cmp.Compare(slices.Index(severities(), s), slices.Index(severities(), other))
}

// ParseSeverity reads one of the four words.
func ParseSeverity(text string) (Severity, error) {
	s := Severity(text)
	if s == "" || !slices.Contains(severities(), s) {
		return "", newError(KindFormat, "severity %.20q: want low, moderate, important or critical", text)
	}
	return s, nil
}

// Advisory says what a release is good for.
type Advisory struct {
	Note     string   `json:"note,omitempty"`  // one line
	Fixes    []string `json:"fixes,omitempty"` // as "CVE-2026-1234" or "bsc#1234567"
	Severity Severity `json:"severity,omitempty"`

	// Mark is the op of ActionNote that set the advisory last; none: the release had it.
	Mark
}

// IsSame reports whether two advisories say the same; nil says nothing.
func (a *Advisory) IsSame(other *Advisory) bool { return a.compare(other) == 0 }

// compare orders advisories by what they say, the one that matters more last.
func (a *Advisory) compare(other *Advisory) int {
	var x, y Advisory
	if a != nil {
		x = *a
	}
	if other != nil {
		y = *other
	}
	return cmp.Or(x.Severity.Compare(y.Severity), slices.Compare(x.Fixes, y.Fixes), strings.Compare(x.Note, y.Note))
}

// With returns the advisory of a release to which another publisher adds one: what an op of ActionNote has set stays,
// and of two others the one that matters more.
func (a *Advisory) With(added *Advisory) *Advisory {
	if added == nil || a != nil && (a.Op != "" || a.compare(added) >= 0) {
		return a
	}
	out := *added
	out.Mark = Mark{}
	return &out
}

// Skipping returns the advisory of a release that is promoted over other builds: it has their fixes, too, and the
// highest severity. The note is its own.
func (a *Advisory) Skipping(b Brought) *Advisory {
	if b.Severity == "" && len(b.Fixes) == 0 {
		return a
	}
	var own Advisory
	if a != nil {
		own = *a
	}
	all := Brought{Severity: b.Severity}
	all.add(Release{Advisory: &own})
	all.add(Release{Advisory: &Advisory{Fixes: b.Fixes}})
	return &Advisory{Note: own.Note, Fixes: all.Fixes, Severity: all.Severity}
}

// String returns the advisory for people, as "important, fixes CVE-2026-1234: a note"; "" if it says nothing.
func (a *Advisory) String() string {
	if a == nil {
		return ""
	}
	var words []string
	if a.Severity != "" {
		words = append(words, string(a.Severity))
	}
	if len(a.Fixes) > 0 {
		words = append(words, "fixes "+strings.Join(a.Fixes, ", "))
	}
	if a.Note != "" {
		words = append(words, a.Note)
	}
	return strings.Join(words, "; ")
}

// size is about how many bytes a page needs for the advisory.
func (a *Advisory) size() int {
	if a == nil {
		return 0
	}
	n := 128 + len(a.Note) + len(a.Op)
	for _, fix := range a.Fixes {
		n += len(fix) + 3
	}
	return n
}

// check checks what every reader needs. The forms of fixes are checked where they are given (see ParseFixes), so that a
// later publisher may know more of them.
func (a *Advisory) check() error {
	switch {
	case a == nil:
		return nil
	case !slices.Contains(severities(), a.Severity):
		_, err := ParseSeverity(string(a.Severity))
		return err
	case len(a.Fixes) > maxBrought:
		return newError(KindTooLarge, "more than %d fixes", maxBrought)
	case a.Op != "" && !IsOpTag(a.Op):
		return newError(KindFormat, "op %.40q: not the tag of an op", a.Op)
	}
	for _, fix := range a.Fixes {
		if len(fix) > maxFix || !fixName().MatchString(fix) {
			return newError(KindFormat, "fix %.80q: want a name of at most %d letters, digits and -_.:#/+", fix, maxFix)
		}
	}
	if outside.Line(a.Note, maxReason) != a.Note {
		return newError(KindFormat, "note: want at most %d printable bytes", maxReason)
	}
	return nil
}

var (
	fixName = lazyregexp.New(`^[A-Za-z][A-Za-z0-9_.:#/+-]*$`)
	// The years of an id begin with 1999, the first of CVE.
	fixForm = lazyregexp.New(`^(CVE-(1999|2\d{3})-\d{4,19}` +
		`|(bsc|boo|bnc)#[1-9]\d{0,9}` +
		`|GHSA(-[23456789cfghjmpqrvwx]{4}){3}` +
		`|(SUSE|openSUSE)-[SRFO]U-2\d{3}:\d{1,6}(-\d{1,3})?` +
		`|RH[SBE]A-2\d{3}:\d{4,6})$`)
)

// ParseFixes reads what a person gives as fixes: texts with names that are separated by commas. Each is named once.
func ParseFixes(texts ...string) ([]string, error) {
	var out []string
	for _, text := range texts {
		for fix := range strings.SplitSeq(text, ",") {
			switch fix = strings.TrimSpace(fix); {
			case !fixForm().MatchString(fix):
				return nil, newError(KindFormat, "%.80q: want CVE-2026-1234, bsc#1234567, boo#1234567, GHSA-xxxx-xxxx-xxxx, "+
					"SUSE-SU-2026:1234-1 or RHSA-2026:1234", fix)
			case !slices.Contains(out, fix):
				out = append(out, fix)
			}
		}
	}
	if len(out) > MaxFixes {
		return nil, newError(KindTooLarge, "%d fixes: want at most %d", len(out), MaxFixes)
	}
	return out, nil
}

// Brought is what an image gains by a change from one release to another.
type Brought struct {
	Severity Severity    `json:"severity,omitempty"` // the highest one
	Fixes    []string    `json:"fixes,omitempty"`    // of the newest release first, each once
	Notes    []NoteOfTag `json:"notes,omitempty"`    // of the newest release first
	Partial  bool        `json:"partial,omitempty"`  // there may be more: a release is not listed, or too much is known
}

// Summary describes the gain for people, as "important; fixes CVE-2026-1234"; "": nothing that is known.
func (b Brought) Summary() string {
	return (&Advisory{Severity: b.Severity, Fixes: b.Fixes}).String()
}

// OrNil returns nil if nothing is known.
func (b Brought) OrNil() *Brought {
	if b.Severity == "" && len(b.Fixes)+len(b.Notes) == 0 {
		return nil
	}
	return &b
}

// With returns what two changes bring in total.
func (b Brought) With(other Brought) Brought {
	b.Fixes = slices.Clone(b.Fixes)
	b.add(Release{Advisory: &Advisory{Severity: other.Severity, Fixes: other.Fixes}})
	b.Notes, b.Partial = slices.Concat(b.Notes, other.Notes), b.Partial || other.Partial
	return b
}

// NoteOfTag is the note of a release.
type NoteOfTag struct {
	Tag  string `json:"tag"`
	Note string `json:"note"`
}

// Between returns what lies between two releases of an image: what its publisher says of each build above the running
// one, up to the offered one. The builds come as a page lists them, the newest first. A build that is of another line
// of tags, or younger than the offered one, is not in it. Without a running digest it is what the offered release
// brings, and a lower release brings nothing.
func Between(builds []Release, running, offered digest.Digest, s tags.Scheme) (out Brought) {
	find := func(d digest.Digest) int {
		return slices.IndexFunc(builds, func(b Release) bool { return b.Digest == d && d != "" })
	}
	from, to := find(running), find(offered)
	if to < 0 {
		return Brought{Partial: true}
	}
	out.Partial = from < 0 && running != ""
	for n, b := range builds {
		isOffered := b.Digest == offered && (from < 0 || isAbove(s, builds, n, from))
		if isOffered || from >= 0 && isBetween(s, builds, n, from, to) {
			out.add(b)
		}
	}
	return out
}

// isBetween reports whether the n-th build is above one and below another.
func isBetween(s tags.Scheme, builds []Release, n, from, to int) bool {
	is, offered := builds[n], builds[to]
	isYounger := !is.Created.IsZero() && !offered.Created.IsZero() && is.Created.After(offered.Created)
	x, errX := s.Parse(is.Tag)
	y, errY := s.Parse(offered.Tag)
	inLine := errX != nil && errY != nil || errX == nil && errY == nil && tags.InLine(x, y)
	return inLine && !isYounger && isAbove(s, builds, n, from) && isAbove(s, builds, to, n)
}

// isAbove reports whether the n-th build is newer than another: by its tag, or, where tags have no order, as it is
// listed.
func isAbove(s tags.Scheme, builds []Release, n, other int) bool {
	x, errX := s.Parse(builds[n].Tag)
	y, errY := s.Parse(builds[other].Tag)
	if errX == nil && errY == nil {
		return tags.Compare(x, y) > 0
	}
	return n < other
}

// add adds what a release has.
func (b *Brought) add(is Release) {
	a := is.Advisory
	if a == nil {
		return
	}
	if a.Severity.Compare(b.Severity) > 0 {
		b.Severity = a.Severity
	}
	for _, fix := range a.Fixes {
		switch {
		case slices.Contains(b.Fixes, fix):
		case len(b.Fixes) == maxBrought:
			b.Partial = true
		default:
			b.Fixes = append(b.Fixes, fix)
		}
	}
	switch {
	case a.Note == "":
	case len(b.Notes) == maxBrought:
		b.Partial = true
	default:
		b.Notes = append(b.Notes, NoteOfTag{Tag: is.Tag, Note: a.Note})
	}
}

// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// RefusesTag refuses a tag by its name, before it is resolved.
func (r Rule) RefusesTag(t tags.Tag, change tags.Change) (Refusal, bool) {
	name := t.Wire()
	if no, refused := r.RefusesUpgrade(change, name); refused {
		return no, true
	}
	switch {
	case change > r.Updates:
		return r.RefuseChange(name, change), true
	case t.Exceeds(r.Max):
		return Refusal{Tag: name, Rule: RuleMax, Reason: "above " + r.Max.String(), Key: "max: " + name}, true
	}
	return r.denies(name)
}

// RefuseChange returns the refusal of a change that is larger than Updates.
func (r Rule) RefuseChange(name string, change tags.Change) Refusal {
	return Refusal{
		Tag: name, Rule: RuleUpdates, Key: "updates: " + change.String(),
		Reason: fmt.Sprintf("%s is more than %s", change, r.Updates),
	}
}

// Refuses returns the refusal of a release, whatever runs.
func (r Rule) Refuses(rel release.Release) (Refusal, bool) {
	names := []string{rel.Tag, rel.Long, rel.Digest.String()}
	if no, denied := r.denies(names...); denied {
		return no, true
	}
	for _, name := range names[:2] {
		if t, err := r.Dialect.Parse(name); err == nil && t.Exceeds(r.Max) {
			return Refusal{Tag: name, Rule: RuleMax, Reason: "above " + r.Max.String(), Key: "max: " + name}, true
		}
	}
	if len(r.Allow) > 0 && !slices.ContainsFunc(names[:2], func(n string) bool { return matching(r.Allow, n) != "" }) {
		reason := "matches none of " + strings.Join(r.Allow, ", ")
		return Refusal{Tag: rel.Name(), Rule: RuleAllow, Reason: reason, Key: "allow"}, true
	}
	return Refusal{}, false
}

func (r Rule) denies(names ...string) (Refusal, bool) {
	for _, name := range names {
		if pattern := matching(r.Deny, name); pattern != "" {
			return Refusal{Tag: name, Rule: RuleDeny, Reason: "matches " + pattern, Key: "deny"}, true
		}
	}
	return Refusal{}, false
}

// matching returns the first pattern that a name matches. The configuration has checked
// the patterns; an invalid one matches nothing.
func matching(patterns []string, name string) string {
	for _, p := range patterns {
		if ok, err := path.Match(p, name); name != "" && err == nil && ok {
			return p
		}
	}
	return ""
}

// ForeignOrigin refuses an image that was tagged into a repository by mistake: its label
// names another repository than this one, and than the label of the known release.
// Authors write labels by hand, so one name may be the beginning of the other
// (ingress-nginx, ingress-nginx-controller).
func ForeignOrigin(known, rel release.Release) (Refusal, bool) {
	if known.Origin == "" || rel.Origin == "" || known.Origin == rel.Origin || similarName(rel.Origin, rel.Repository) {
		return Refusal{}, false
	}
	return Refusal{
		Tag: rel.Name(), Rule: RuleOrigin,
		Reason: fmt.Sprintf("its label says %s, that of %s says %s", rel.Origin, known.Name(), known.Origin),
	}, true
}

func similarName(a, b string) bool {
	a, b = path.Base(a), path.Base(b)
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

// IsOlder reports whether a release is older than what runs under the same tag, by its long
// tag. If the times of creation contradict, it is not older, with a warning: OBS' build
// counter restarts when an image moves to another project.
func IsOlder(running, rel release.Release, d tags.Dialect, now time.Time) (older bool, warning string) {
	was, errWas := d.Parse(running.Long)
	is, errIs := d.Parse(rel.Long)
	if errWas != nil || errIs != nil || was == is {
		return IsEarlier(rel, running, now), ""
	}
	higher := tags.Compare(is, was) > 0
	switch {
	case higher && IsEarlier(rel, running, now):
		return false, EarlierWarning(rel, running)
	case !higher && IsEarlier(running, rel, now):
		return false, fmt.Sprintf("%s is older by name than %s, but was created later (%s, %s)",
			rel.Long, running.Long, day(rel.Created), day(running.Created))
	}
	return !higher, ""
}

// IsLower reports whether a tag is lower than another one.
func IsLower(tag, than string, d tags.Dialect) bool {
	is, errIs := d.Parse(tag)
	was, errWas := d.Parse(than)
	return errIs == nil && errWas == nil && tags.ChangeBetween(was, is) == tags.Lower
}

// IsEarlier reports whether a was created before b. It is false if a time is not known.
func IsEarlier(a, b release.Release, now time.Time) bool {
	return IsPlausibleCreation(a.Created, now) && IsPlausibleCreation(b.Created, now) && a.Created.Before(b.Created)
}

// IsPlausibleCreation reports whether an image can have been created at a time. A time in the future
// is not believed: the image would be newer than any later build.
func IsPlausibleCreation(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// EarlierWarning warns that a release with a higher tag was created earlier.
func EarlierWarning(rel, than release.Release) string {
	return fmt.Sprintf("%s is newer by name than %s, but was created earlier (%s, %s)",
		rel.Name(), than.Name(), day(rel.Created), day(than.Created))
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ReleaseChange returns the change between the names of two releases, at least a rebuild.
func ReleaseChange(was, rel release.Release, rule Rule) tags.Change {
	from, errFrom := rule.Dialect.Parse(was.Name())
	to, errTo := rule.Dialect.Parse(rel.Name())
	if errFrom != nil || errTo != nil {
		return tags.Rebuild
	}
	return max(tags.ChangeBetween(from, to), tags.Rebuild)
}

// AreEquivalent reports whether two tags name the same releases, as a short tag and its
// intermediate tag do. A tag that the configuration follows is equal to itself only.
func AreEquivalent(a, b string, rule Rule) bool {
	x, errX := rule.Dialect.Parse(a)
	y, errY := rule.Dialect.Parse(b)
	return rule.Follow == "" && errX == nil && errY == nil && tags.ChangeBetween(x, y) == tags.Same
}

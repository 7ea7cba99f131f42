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

// RefusesTag tells what can be said against a tag before anybody is asked what
// it names.
func (r Rule) RefusesTag(t tags.Tag, change tags.Change) (Refusal, bool) {
	name := t.Wire()
	if no, refused := r.RefusesUpgrade(change, name); refused {
		return no, true
	}
	switch {
	case change > r.Updates:
		return r.TooMuch(name, change), true
	case t.Exceeds(r.Max):
		return Refusal{Tag: name, Rule: RuleMax, Reason: "above " + r.Max.String(), Key: "max: " + name}, true
	}
	return r.denies(name)
}

func (r Rule) TooMuch(name string, change tags.Change) Refusal {
	return Refusal{
		Tag: name, Rule: RuleUpdates, Key: "updates: " + change.String(),
		Reason: fmt.Sprintf("%s is more than %s", change, r.Updates),
	}
}

// Refuses tells by which rule a release may not be offered, whatever runs.
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

// matching gives the first pattern that a name matches. The configuration has
// checked the patterns: a bad one matches nothing.
func matching(patterns []string, name string) string {
	for _, p := range patterns {
		if ok, err := path.Match(p, name); name != "" && err == nil && ok {
			return p
		}
	}
	return ""
}

// ForeignOrigin tells an image that was tagged into a repository by mistake: by its
// own label it comes from another one than what is there, and that is not this
// one either. Labels are what their authors made of them, so a name that is the
// beginning of the other passes (ingress-nginx, ingress-nginx-controller).
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

// IsOlder tells whether a release is older than what runs under the same tag.
// The long tags say so, unless the times of creation say the opposite: OBS'
// build counter starts anew when an image moves to another project.
func IsOlder(running, rel release.Release, d tags.Dialect, now time.Time) (older bool, warning string) {
	was, errWas := d.Parse(running.Long)
	is, errIs := d.Parse(rel.Long)
	if errWas != nil || errIs != nil || was == is {
		return IsEarlier(rel, running, now), ""
	}
	higher, later := tags.Compare(is, was) > 0, IsEarlier(running, rel, now)
	switch {
	case higher && IsEarlier(rel, running, now):
		return false, fmt.Sprintf("%s is newer by name than %s, but was created earlier (%s, %s)",
			rel.Long, running.Long, day(rel.Created), day(running.Created))
	case !higher && later:
		return false, fmt.Sprintf("%s is older by name than %s, but was created later (%s, %s)",
			rel.Long, running.Long, day(rel.Created), day(running.Created))
	}
	return !higher, ""
}

// IsLower reports whether a tag is below what a release is called.
func IsLower(tag, than string, d tags.Dialect) bool {
	is, errIs := d.Parse(tag)
	was, errWas := d.Parse(than)
	return errIs == nil && errWas == nil && tags.ChangeBetween(was, is) == tags.Lower
}

// IsEarlier compares times of creation, where both are known. Builds that can be
// reproduced have the same time in all of them, and are not told apart.
func IsEarlier(a, b release.Release, now time.Time) bool {
	return IsCreation(a.Created, now) && IsCreation(b.Created, now) && a.Created.Before(b.Created)
}

// IsCreation tells whether an image can have been created then. A time in the
// future is no evidence: what runs would be newer than any later build.
func IsCreation(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

func EarlierThan(rel, than release.Release) string {
	return fmt.Sprintf("%s is newer by name than %s, but was created earlier (%s, %s)",
		rel.Name(), than.Name(), day(rel.Created), day(than.Created))
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Risen is what a release changes against what runs, as far as names tell it: a
// rebuild at least.
func Risen(was, rel release.Release, rule Rule) tags.Change {
	from, errFrom := rule.Dialect.Parse(was.Name())
	to, errTo := rule.Dialect.Parse(rel.Name())
	if errFrom != nil || errTo != nil {
		return tags.Rebuild
	}
	return max(tags.ChangeBetween(from, to), tags.Rebuild)
}

// AreTwins reports whether two tags stand for the same releases, as a short tag
// and its intermediate one do. What the configuration follows stands for itself.
func AreTwins(a, b string, rule Rule) bool {
	x, errX := rule.Dialect.Parse(a)
	y, errY := rule.Dialect.Parse(b)
	return rule.Follow == "" && errX == nil && errY == nil && tags.ChangeBetween(x, y) == tags.Same
}

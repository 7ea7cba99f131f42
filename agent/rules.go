// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/tags"
)

// refusesTag tells what can be said against a tag before anybody is asked what
// it names.
func (r Rule) refusesTag(t tags.Tag, change tags.Change) (Refusal, bool) {
	name := t.Wire()
	switch {
	case change > r.Updates:
		return Refusal{name, RuleUpdates, fmt.Sprintf("%s is more than %s", change, r.Updates)}, true
	case t.Exceeds(r.Max):
		return Refusal{name, RuleMax, "above " + r.Max.String()}, true
	}
	return r.denies(name)
}

// refuses tells by which rule a release may not be offered, whatever runs.
func (r Rule) refuses(rel Release) (Refusal, bool) {
	names := []string{rel.Tag, rel.Long, rel.Digest.String()}
	if no, denied := r.denies(names...); denied {
		return no, true
	}
	for _, name := range names[:2] {
		if t, err := r.Dialect.Parse(name); err == nil && t.Exceeds(r.Max) {
			return Refusal{name, RuleMax, "above " + r.Max.String()}, true
		}
	}
	if len(r.Allow) > 0 && !slices.ContainsFunc(names[:2], func(n string) bool { return matching(r.Allow, n) != "" }) {
		return Refusal{rel.Name(), RuleAllow, "matches none of " + strings.Join(r.Allow, ", ")}, true
	}
	return Refusal{}, false
}

func (r Rule) denies(names ...string) (Refusal, bool) {
	for _, name := range names {
		if pattern := matching(r.Deny, name); pattern != "" {
			return Refusal{name, RuleDeny, "matches " + pattern}, true
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

// stranger tells an image that was tagged into a repository by mistake: by its
// own label it comes from another one than what is there, and that is not this
// one either. Labels are what their authors made of them, so a name that is the
// beginning of the other passes (ingress-nginx, ingress-nginx-controller).
func stranger(known, rel Release) (Refusal, bool) {
	if known.Origin == "" || rel.Origin == "" || known.Origin == rel.Origin || akin(rel.Origin, rel.Repository) {
		return Refusal{}, false
	}
	return Refusal{
		rel.Name(), RuleOrigin, fmt.Sprintf("its label says %s, that of %s says %s", rel.Origin, known.Name(), known.Origin),
	}, true
}

func akin(a, b string) bool {
	a, b = path.Base(a), path.Base(b)
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

// backwards tells whether a release is older than what runs under the same tag.
// The long tags say so, unless the times of creation say the opposite: OBS'
// build counter starts anew when an image moves to another project.
func backwards(running, rel Release, d tags.Dialect) (older bool, warning string) {
	was, errWas := d.Parse(running.Long)
	is, errIs := d.Parse(rel.Long)
	if errWas != nil || errIs != nil || was == is {
		return isEarlier(rel, running), ""
	}
	higher, later := tags.Compare(is, was) > 0, isEarlier(running, rel)
	switch {
	case higher && isEarlier(rel, running):
		return false, fmt.Sprintf("%s is newer by name than %s, but was created earlier (%s, %s)",
			rel.Long, running.Long, day(rel.Created), day(running.Created))
	case !higher && later:
		return false, fmt.Sprintf("%s is older by name than %s, but was created later (%s, %s)",
			rel.Long, running.Long, day(rel.Created), day(running.Created))
	}
	return !higher, ""
}

// isLower reports whether a tag is below what a release is called.
func isLower(tag, than string, d tags.Dialect) bool {
	is, errIs := d.Parse(tag)
	was, errWas := d.Parse(than)
	return errIs == nil && errWas == nil && tags.ChangeBetween(was, is) == tags.Lower
}

// isEarlier compares times of creation, where both are known. Builds that can be
// reproduced have the same time in all of them, and are not told apart.
func isEarlier(a, b Release) bool {
	return !a.Created.IsZero() && a.Created.Before(b.Created)
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

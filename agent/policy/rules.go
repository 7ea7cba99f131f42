// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// RefusesTag refuses a tag by its name, before it is resolved.
func (r Rule) RefusesTag(t tags.Tag, change tags.Change) (Refusal, bool) {
	name := t.String()
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
		Reason: fmt.Sprintf("a %s change is larger than updates: %s", change, r.Updates),
	}
}

// Refuses returns the refusal of a release, independent of the running one.
func (r Rule) Refuses(rel release.Release) (Refusal, bool) {
	names := []string{rel.Tag, rel.Long, rel.Digest.String()}
	if no, denied := r.denies(names...); denied {
		return no, true
	}
	for _, name := range names[:2] {
		if t, err := r.Scheme.Parse(name); err == nil && t.Exceeds(r.Max) {
			return Refusal{Tag: name, Rule: RuleMax, Reason: "above " + r.Max.String(), Key: "max: " + name}, true
		}
	}
	if len(r.Allow) > 0 && !slices.ContainsFunc(names[:2], func(n string) bool { return matching(r.Allow, n) != "" }) {
		reason := "matches no pattern of " + strings.Join(r.Allow, ", ")
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

// ForeignOrigin refuses an image that was tagged into a repository by mistake: its label names another repository than
// this one, and than the label of the known release. If that has no label, or no release is known, nothing supports the
// label, and the image is refused as well. Authors write labels by hand, so one name may be a prefix of the other
// (ingress-nginx, ingress-nginx-controller).
func ForeignOrigin(known, rel release.Release) (Refusal, bool) {
	if rel.Origin == "" || known.Origin == rel.Origin || similarName(rel.Origin, rel.Repository) {
		return Refusal{}, false
	}
	other := fmt.Sprintf("the label of %s is %s", known.Name(), known.Origin)
	if known.Origin == "" {
		other = "the repository is " + rel.Repository
	}
	return Refusal{
		Tag: rel.Name(), Rule: RuleOrigin, Reason: fmt.Sprintf("its label is %s, %s", rel.Origin, other),
	}, true
}

func similarName(a, b string) bool {
	a, b = path.Base(a), path.Base(b)
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

// IsLower reports whether a tag is lower than another one.
func IsLower(tag, than string, s tags.Scheme) bool {
	is, errIs := s.Parse(tag)
	was, errWas := s.Parse(than)
	return errIs == nil && errWas == nil && tags.ChangeBetween(was, is) == tags.Lower
}

// ReleaseChange returns the change between the names of two releases, at least a rebuild.
func ReleaseChange(was, rel release.Release, rule Rule) tags.Change {
	from, errFrom := rule.Scheme.Parse(was.Name())
	to, errTo := rule.Scheme.Parse(rel.Name())
	if errFrom != nil || errTo != nil {
		return tags.Rebuild
	}
	return max(tags.ChangeBetween(from, to), tags.Rebuild)
}

// AreEquivalent reports whether two tags name the same releases, as a short tag and its intermediate tag do. A tag that
// the configuration follows is only equivalent to itself.
func AreEquivalent(a, b string, rule Rule) bool {
	x, errX := rule.Scheme.Parse(a)
	y, errY := rule.Scheme.Parse(b)
	return rule.Follow == "" && errX == nil && errY == nil && tags.ChangeBetween(x, y) == tags.Same &&
		(a == b || x.Form() != y.Form())
}

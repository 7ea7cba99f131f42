// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// Refusal is a tag that is not offered, with the reason.
type Refusal struct {
	Tag    string `json:"tag"`
	Rule   string `json:"rule"` // a stable word, see the constants
	Reason string `json:"reason"`
	// Key is the setting that would allow it, as in "updates: minor"; empty if there is none.
	Key string `json:"key,omitempty"`
	// Since is when it was first seen, for RulePublishing.
	Since time.Time `json:"since,omitzero"`
	// Holds: the node is held until the refusal ends.
	Holds bool `json:"holds,omitempty"`
	// ByHand: a person rolled it back, for RuleFailed.
	ByHand bool `json:"byHand,omitempty"`
	// RetryAt is when the signature is verified again.
	RetryAt time.Time `json:"retryAt,omitzero"`
}

// The rules that refuse a release; package catalog has those of a catalog. They are part of the machine interface.
const (
	RuleUpdates    = "updates"      // a larger change than the policy allows
	RuleAllow      = "allow"        // matches none of the allowed patterns
	RuleDeny       = "deny"         // matches a denied pattern or digest
	RuleMax        = "max"          // above the maximum
	RuleKubeadm    = "kubeadm"      // more than a patch for a control plane of kubeadm, and no pattern of allow matches
	RuleMissing    = "missing"      // listed, but not served
	RulePlatform   = "platform"     // not for this node
	RuleOrigin     = "origin"       // an image of another application, by its label
	RuleOlder      = "older"        // the tag was moved to an older build
	RuleSignature  = "signature"    // not signed (yet), or without a valid signature
	RulePublishing = "publishing"   // the long tag exists, its floating tag does not name it yet
	RuleConfirm    = "confirmAfter" // the second reading named another digest
	RuleFailed     = "failed"       // it did not come up on this node, or a person rolled it back
)

// Setting identifies the setting that would allow the tag.
func (r Refusal) Setting() string {
	if r.Rule == RuleUpdates {
		return r.Key
	}
	return r.Rule
}

// String returns the refusal in one line.
func (r Refusal) String() string { return fmt.Sprintf("%s refused by %s: %s", r.Tag, r.Rule, r.Reason) }

// publishingTime is how long a long tag without its floating one counts as being published. OBS takes minutes; after
// this time the build counts as withdrawn.
const publishingTime = 24 * time.Hour

// IsAwaited reports whether the refusal is expected to end without a person.
func (r Refusal) IsAwaited(now time.Time) bool {
	switch r.Rule {
	case RuleSignature, RuleOlder:
		return true
	case RulePublishing:
		return now.Sub(r.Since) < publishingTime
	}
	return false
}

// ByConfiguration returns the first refusal for each setting that would allow it.
func ByConfiguration(refused []Refusal) []Refusal {
	var out []Refusal
	for _, no := range refused {
		byRule := slices.Contains([]string{RuleUpdates, RuleMax, RuleAllow, RuleDeny, RuleKubeadm}, no.Rule)
		if byRule && !slices.ContainsFunc(out, func(o Refusal) bool { return o.Setting() == no.Setting() }) {
			out = append(out, no)
		}
	}
	return out
}

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

// RefusesListed refuses a release that the catalog withholds, or does not list.
func (p Policy) RefusesListed(l catalog.Listing, rel release.Release) (Refusal, bool) {
	rule, reason, key := p.Catalog.Refuses(l, rel)
	return Refusal{Tag: rel.Name(), Rule: rule, Reason: reason, Key: key}, rule != ""
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

// ChangeOf returns the change from the running release to target. Digests decide whether there is a change, tags how
// large it is. same: the target's image runs; known: the running or last release is known.
func ChangeOf(disk release.Reference, target release.Release, known, same bool, s tags.Scheme) string {
	if disk.Repository == "" {
		return "" // no pod yet: nothing to change
	}
	disk = disk.Tagged() // kubelet pulls latest for a reference without a tag
	if disk.Repository == target.Repository && disk.Tag == target.Tag {
		if known && !same {
			return tags.Rebuild.String()
		}
		return ""
	}
	if same {
		return ChangeConvert
	}
	from, errF := s.Parse(disk.Tag)
	to, errT := s.Parse(target.Tag)
	if errF != nil || errT != nil || tags.ChangeBetween(from, to) == tags.Unrelated {
		return tags.Major.String()
	}
	switch c := tags.ChangeBetween(from, to); {
	case c == tags.Lower:
		return tags.Major.String() // by a rewrite or a value: the admin must check it
	case c > tags.Same:
		return c.String()
	case !known:
		return ChangeConvert // only the name changes
	case from.Form() == to.Form() || (from.Rev() != "" && from.Rev() == to.Rev()):
		return tags.Rebuild.String() // another name for the same revision
	default:
		return tags.Revision.String() // the short tag was moved to another revision
	}
}

// The changes in addition to those of tags.Change.
const (
	// ChangeConvert changes the tag's form or the pull policy, but not the software.
	ChangeConvert = "convert"
	// ChangeRemove removes a pod manifest of the agent whose template is gone.
	ChangeRemove = "remove"
)

// ChangeRank orders the changes. A pod's change is the largest of its images.
var ChangeRank = map[string]int{
	"": 0, ChangeConvert: 1, "rebuild": 2, "revision": 3, "patch": 4, "minor": 5, "major": 6, ChangeRemove: 7,
}

// IsMinor reports whether a change is at least minor.
func IsMinor(change string) bool { return ChangeRank[change] >= ChangeRank[tags.Minor.String()] }

// IsOlder reports whether a release is older than the running one under the same tag, by its long tag. If the creation
// times contradict that, it is not older, and a warning is returned: OBS' build counter restarts when an image moves to
// another project.
func IsOlder(running, rel release.Release, s tags.Scheme, now time.Time) (older bool, warning string) {
	was, errWas := s.Parse(running.Long)
	is, errIs := s.Parse(rel.Long)
	if errWas != nil || errIs != nil || was == is {
		return IsEarlier(rel, running, now), ""
	}
	order := tags.Compare(is, was)
	warning = contradiction(order, running, rel, now)
	return order < 0 && warning == "", warning
}

// Contradiction returns how the order of two releases by name contradicts their order by creation time: a release with
// a higher tag was created earlier, or one with a lower tag later. Then neither order decides which one is newer, and a
// person must. It is empty if the orders agree, or if a time is not plausible.
func Contradiction(was, rel release.Release, s tags.Scheme, now time.Time) string {
	from, errFrom := s.Parse(was.Name())
	to, errTo := s.Parse(rel.Name())
	if errFrom != nil || errTo != nil {
		return ""
	}
	switch change := tags.ChangeBetween(from, to); {
	case change > tags.Same:
		return contradiction(1, was, rel, now)
	case change == tags.Lower:
		return contradiction(-1, was, rel, now)
	}
	return ""
}

// contradiction is Contradiction of two releases with ordered names: order is above 0 if rel's name is higher.
func contradiction(order int, was, rel release.Release, now time.Time) string {
	than := "newer by name than %s, but was created earlier"
	switch {
	case order > 0 && IsEarlier(rel, was, now):
	case order < 0 && IsEarlier(was, rel, now):
		than = "older by name than %s, but was created later"
	default:
		return ""
	}
	return fmt.Sprintf("%s is "+than+" (%s, %s)", rel.Name(), was.Name(), day(rel.Created), day(was.Created))
}

// IsEarlier reports whether a was created before b. It is false if a time is not plausible.
func IsEarlier(a, b release.Release, now time.Time) bool {
	return IsPlausibleCreation(a.Created, now) && IsPlausibleCreation(b.Created, now) && a.Created.Before(b.Created)
}

// firstImages is a lower limit for creation times of images: Docker was shown in March 2013.
var firstImages = time.Date(2013, time.March, 1, 0, 0, 0, 0, time.UTC)

// IsPlausibleCreation reports whether an image can have been created at a time. A time in the future is not plausible:
// the image would be newer than any later build. Reproducible builds write 1970, 1980 or the year 1, which says nothing
// about when they were made.
func IsPlausibleCreation(at, now time.Time) bool { return !at.Before(firstImages) && !at.After(now) }

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// Policy is what the admin wants, from the configuration. Decide only reads it.
type Policy struct {
	// PullPolicy is written into what templates render: Always or IfNotPresent.
	PullPolicy string
	// ManagedPullPolicy is written into pod manifests without a template; empty: they
	// keep their own.
	ManagedPullPolicy string
	// Rewrites replace repository prefixes while rendering.
	Rewrites []manifests.Rewrite
	// Values are tags for __TAG__, by repository as the template writes it.
	Values map[string]string
	// Manage are pod manifests without a template that may be changed, by file
	// name. Those with a template always may.
	Manage map[string]bool
	// NodeName is the node's name in Kubernetes, by which a pod of CRI is told to be a
	// static pod's; empty: by the longest name that fits.
	NodeName string
	// Images are tracked although no pod manifest names them.
	Images []release.Reference
	// Rule gives a repository's rule. It must be pure.
	Rule func(repository string) Rule
	// ListEvery is how often a tag list is asked for, at most.
	ListEvery time.Duration
	// ConfirmAfter is the time between the two readings of a digest that is new to
	// the node; 0: one is enough.
	ConfirmAfter time.Duration
	// StageDelay is this node's own part of the spread of staging: so long after a
	// poll has found something its pull begins. A person does not wait for it.
	StageDelay time.Duration
	// Together is how many releases are staged at a time; below 1 is 1.
	Together int
	// Reserve is what stays free of the image filesystem.
	Reserve Reserve
	// Prune is what becomes of old releases.
	Prune Prune
	// Auto applies what is staged without anybody's yes, while Window is open.
	Auto bool
	// Window tells whether an apply may begin by itself, and when that changes; nil:
	// it always may. It must be pure.
	Window func(now time.Time) (open bool, change time.Time)
	// Freeze is when applies are allowed again; zero: they are.
	Freeze time.Time
	// Order are shell patterns (path.Match) of pod manifests: those are applied
	// first, in this order.
	Order []string
	// Forgets is KubeletForgets, but on a node without a kubelet.
	Forgets time.Duration
	// ApplyTimeout bounds the wait for CRI to show the applied digest, and Settle is
	// how long it must stay so.
	ApplyTimeout, Settle time.Duration
}

// Prune says how many old releases stay.
type Prune struct {
	// Keep is how many releases that ran well stay beside the one that does.
	Keep int
	// Foreign: old releases of followed repositories go also where staging did not
	// bring them.
	Foreign bool
}

// Rule is the policy of one repository.
type Rule struct {
	Updates tags.Change  // the largest change that may be offered
	Dialect tags.Dialect // how its tags are spelt
	// Follow is the floating tag to follow instead of the one that is written in a
	// file of ours; empty: that one.
	Follow string
	// Allow and Deny are shell patterns (path.Match) for tags; one of Deny may be a
	// digest. What Allow does not match, if it is not empty, or Deny does, is not
	// offered.
	Allow, Deny []string
	// Max is the highest release that may be offered (tags.Tag.Exceeds); zero: none.
	Max tags.Tag
	// Signatures: what signatures are good for here; empty: SignaturesOff.
	Signatures Signatures
	// Older: a tag that goes back to an older build is followed.
	Older bool
	// Hold is why nothing of the repository is applied; empty: it may be. It ends
	// at HoldUntil; zero: never.
	Hold      string
	HoldUntil time.Time

	kubeadm bool // of an image of a control plane of kubeadm, see RuleForQuestion
}

func (p Policy) RuleFor(repository string) Rule {
	if p.Rule == nil {
		return Rule{Updates: tags.Revision}
	}
	return p.Rule(repository)
}

// RuleForQuestion gives the rule that a question's answers go by.
func (p Policy) RuleForQuestion(q release.Question) Rule {
	r := p.RuleFor(q.Repository)
	r.kubeadm = q.Kubeadm
	return r
}

// Value finds the tag for a placeholder: by the name that the template writes,
// by the name after the rewrite, and by that name as CRI normalises it.
func (p Policy) Value(written, rewritten, normalised string) string {
	for _, name := range []string{written, rewritten, normalised} {
		if tag := p.Values[name]; tag != "" {
			return tag
		}
	}
	return ""
}

// Asks identifies what of a rule decides what a source is asked for: after a
// change the last answer may lack what is allowed now.
func (r Rule) Asks() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %q %q %q %s", r.Updates, r.Dialect, r.Follow, r.Allow, r.Deny, r.Max))
	return hex.EncodeToString(sum[:8])
}

// RefusesUpgrade refuses more than a patch of a control plane of kubeadm, unless a
// pattern of `allow` matches one of its names: a new tag is no `kubeadm upgrade`.
func (r Rule) RefusesUpgrade(change tags.Change, names ...string) (Refusal, bool) {
	allowed := func(name string) bool { return matching(r.Allow, name) != "" }
	if !r.kubeadm || change <= tags.Patch || slices.ContainsFunc(names, allowed) {
		return Refusal{}, false
	}
	return Refusal{
		Tag: names[0], Rule: RuleKubeadm, Key: "allow",
		Reason: change.String() + " of a control plane that kubeadm owns: use kubeadm upgrade, or allow: [" + names[0] + "]",
	}, true
}

// Open reports whether an apply may begin by itself, and when that changes.
func (p Policy) Open(now time.Time) (open bool, change time.Time) {
	if p.Window == nil {
		return true, time.Time{}
	}
	return p.Window(now)
}

// Signatures says what a repository's signatures are good for.
type Signatures string

// The policies of signatures. The empty one is SignaturesOff.
const (
	SignaturesOff     Signatures = "off"     // nobody looks
	SignaturesWarn    Signatures = "warn"    // what is not signed well is noted, and staged
	SignaturesRequire Signatures = "require" // it is not staged
)

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"regexp"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// version matches the version that begins a tag of an unknown scheme.
var version = regexp.MustCompile(`^v?[0-9]+(\.[0-9]+)+`)

// rebuildsOnly describes a tag that the rule's dialect cannot parse, with a dialect or tag
// that would help; nil: it can.
func rebuildsOnly(tag string, rule policy.Rule) *status.RebuildsOnly {
	if _, err := rule.Dialect.Parse(tag); err == nil || tag == "" {
		return nil
	}
	only := &status.RebuildsOnly{Tag: tag}
	for _, d := range []tags.Dialect{tags.Core, tags.Hyphen, tags.HyphenDash, tags.ShortB} {
		if _, err := d.Parse(tag); err == nil {
			only.Dialect = d.String()
			return only
		}
	}
	if part := version.FindString(tag); part != "" {
		if _, err := rule.Dialect.Parse(part); err == nil {
			only.Follow = part
		}
	}
	return only
}

// notAllowed returns the highest refusal for each setting that would allow it.
func notAllowed(refused []policy.Refusal) []policy.Refusal {
	var out []policy.Refusal
	for _, no := range refused {
		byRule := slices.Contains(
			[]string{policy.RuleUpdates, policy.RuleMax, policy.RuleAllow, policy.RuleDeny, policy.RuleKubeadm}, no.Rule,
		)
		if byRule && !slices.ContainsFunc(out, func(o policy.Refusal) bool { return o.Setting() == no.Setting() }) {
			out = append(out, no)
		}
	}
	return out
}

// Images calls f with each image of the pods and of the configuration; file is its pod
// manifest.
func (p Plan) Images(f func(file string, i ImagePlan)) {
	for _, pod := range p.Pods {
		for _, i := range pod.Images {
			if i.Want.Ask.Repository != "" {
				f(pod.File, i)
			}
		}
	}
	for _, i := range p.Tracked {
		f("", i)
	}
}

// NotAllowed returns the newer tags that the configuration refuses, sorted and without
// duplicates.
func (p Plan) NotAllowed() []status.NotAllowed {
	out := []status.NotAllowed{}
	p.Images(func(_ string, i ImagePlan) {
		for _, no := range i.NotAllowed {
			out = append(out, status.NotAllowed{Image: i.Offer.Repository, Tag: no.Tag, Rule: no.Rule, Key: no.Key})
		}
	})
	slices.SortFunc(out, func(x, y status.NotAllowed) int {
		return strings.Compare(x.Image+" "+x.Key+" "+x.Tag, y.Image+" "+y.Key+" "+y.Tag)
	})
	return slices.Compact(out)
}

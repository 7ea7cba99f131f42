// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/yamledit"
)

// policies plans the pull policy of every image that may be edited.
func (p *plan) policies() {
	if p.overrides.PullPolicy == "" {
		return
	}
	root := p.file.Documents[0].Content[0]
	u := countUses(root)
	shared := newValues()
	for i, s := range p.sites {
		switch {
		case !s.image.Editable:
		case s.policy != nil:
			if reason := policyReason(s.policy); reason != "" {
				p.leave(i, reason)
				continue
			}
			shared.add(s.policy, i, p.overrides.PullPolicy)
		case s.merged || !u.once(s.owner) || !p.insertPolicy(i):
			p.leave(i, ReasonPolicyShared)
		}
	}
	for _, n := range shared.order {
		p.replacePolicy(shared.sites[n], n, u)
	}
}

func policyReason(policy *yaml.Node) string {
	n := yamledit.Resolve(policy)
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		return ReasonPolicyUnknown
	case n.Value == pullNever:
		return ReasonPolicyNever
	case n.Value != PullAlways && n.Value != PullIfNotPresent && n.Value != "":
		return ReasonPolicyUnknown
	}
	return ""
}

func (p *plan) replacePolicy(sites []int, n *yaml.Node, u uses) {
	want := p.overrides.PullPolicy
	if n.Value == want {
		return
	}
	edit, err := p.file.Replace(n, want)
	reason := ReasonPolicyUnknown // a block scalar
	if u != nil && u[n] != len(sites) {
		reason = ReasonPolicyShared
	}
	if err != nil || reason == ReasonPolicyShared {
		for _, i := range sites {
			p.leave(i, reason)
		}
		return
	}
	from := n.Value
	for _, i := range sites {
		s := p.sites[i]
		p.note(i, policyPath(s.image), s.policy.Line, from, want)
	}
	p.change(edit, func() { n.Value = want })
}

// policyPath is the path of the pull policy beside a reference.
func policyPath(img Image) string {
	if base, ok := strings.CutSuffix(img.Path, ".reference"); ok {
		return base + ".pullPolicy"
	}
	return strings.TrimSuffix(img.Path, ".image") + ".imagePullPolicy"
}

// insertPolicy puts the pull policy behind the reference: on a line of its own
// with the indentation of the reference's key, or behind a comma in flow style.
func (p *plan) insertPolicy(i int) bool {
	s := p.sites[i]
	_, end, err := p.file.Scalar(s.value)
	if err != nil {
		return false
	}
	path, want := policyPath(s.image), p.overrides.PullPolicy
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: path[strings.LastIndexByte(path, '.')+1:]}
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: want}
	var edit yamledit.Edit
	if s.owner.Style&yaml.FlowStyle != 0 {
		written := ", " + key.Value + ": " + want
		if s.key.Style&yaml.DoubleQuotedStyle != 0 { // JSON wants both quoted
			written = `, "` + key.Value + `": "` + want + `"`
			key.Style, value.Style = yaml.DoubleQuotedStyle, yaml.DoubleQuotedStyle
		}
		edit = yamledit.Edit{Start: end, End: end, Text: written}
	} else {
		edit = p.file.InsertLine(end, p.file.KeyIndent(s.key)+key.Value+": "+want)
	}
	p.note(i, path, s.image.Line, "", want)
	p.change(edit, func() {
		at := slices.Index(s.owner.Content, s.value) + 1
		s.owner.Content = slices.Insert(s.owner.Content, at, key, value)
	})
	return true
}

// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// policies plans the pull policies of the images that references edits.
func (p *plan) policies(references *values) {
	if p.overrides.PullPolicy == "" {
		return
	}
	shared := newValues()
	for _, i := range slices.Sorted(maps.Keys(references.want)) {
		s := p.sites[i]
		switch {
		case s.policy != nil:
			if reason := policyReason(s.policy); reason != "" {
				p.leave(i, reason)
				continue
			}
			shared.add(s.policy, i, p.overrides.PullPolicy)
		case s.merged || p.isShared(s.owner, []int{i}) || !p.insertPolicy(i):
			p.leave(i, ReasonPolicyShared)
		}
	}
	for _, n := range shared.order {
		p.replacePolicy(shared.sites[n], n)
	}
}

func policyReason(policy *yaml.Node) string {
	n := yamledit.Resolve(policy)
	switch {
	case n.ShortTag() == "!!null": // kubelet takes it for an absent field
		return ""
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		return ReasonPolicyUnknown
	case n.Value == pullNever:
		return ReasonPolicyNever
	case n.Value != PullAlways && n.Value != PullIfNotPresent && n.Value != "":
		return ReasonPolicyUnknown
	}
	return ""
}

func (p *plan) replacePolicy(sites []int, n *yaml.Node) {
	want, reason := p.overrides.PullPolicy, ""
	switch {
	case n.Value == want:
		return
	case p.isShared(n, sites):
		reason = ReasonPolicyShared
	case n.ShortTag() == "!!null":
		if p.replaceNull(p.sites[sites[0]].rule, n, want) != nil {
			reason = ReasonPolicyUnknown
		}
	case p.replace(n, want) != nil: // a block scalar
		reason = ReasonPolicyUnknown
	}
	for _, i := range sites {
		if reason != "" {
			p.leave(i, reason)
		} else {
			p.note(i, policyPath(p.Images[i]), p.sites[i].policy.Line, scalarText(n), want)
		}
	}
}

// replaceNull gives the pull policy a value in place of null.
func (p *plan) replaceNull(key, n *yaml.Node, want string) error {
	edit, err := p.yaml.ReplaceNull(key, n, want)
	if err != nil {
		return err
	}
	other := *n
	other.Tag, other.Value = "!!str", want
	if strings.HasPrefix(edit.Text, `"`) { // JSON
		other.Style = yaml.DoubleQuotedStyle
	}
	p.edits, p.intended[n] = append(p.edits, edit), &other
	return nil
}

// policyPath returns the path of the pull policy next to a reference.
func policyPath(img Image) string {
	if base, ok := strings.CutSuffix(img.Path, ".reference"); ok {
		return base + ".pullPolicy"
	}
	return strings.TrimSuffix(img.Path, ".image") + ".imagePullPolicy"
}

// insertPolicy inserts the pull policy after the reference: on a new line with the indentation of the reference's key,
// or after a comma in flow style.
func (p *plan) insertPolicy(i int) bool {
	s := p.sites[i]
	_, end, err := p.yaml.Scalar(s.value)
	if err != nil {
		return false
	}
	path, want := policyPath(p.Images[i]), p.overrides.PullPolicy
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: path[strings.LastIndexByte(path, '.')+1:]}
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: want}
	var edit yamledit.Edit
	if s.owner.Style&yaml.FlowStyle != 0 {
		written := ", " + key.Value + ": " + want
		if s.key.Style&yaml.DoubleQuotedStyle != 0 { // JSON needs quotes around both
			written = `, "` + key.Value + `": "` + want + `"`
			key.Style, value.Style = yaml.DoubleQuotedStyle, yaml.DoubleQuotedStyle
		}
		edit = yamledit.Edit{Start: end, End: end, Text: written}
	} else {
		edit = p.yaml.InsertLine(end, p.yaml.KeyIndent(s.key)+key.Value+": "+want)
	}
	p.note(i, path, p.Images[i].Line, "", want)
	other := *s.owner
	other.Content = slices.Insert(slices.Clone(other.Content), slices.Index(other.Content, s.value)+1, key, value)
	p.edits, p.intended[s.owner] = append(p.edits, edit), &other
	return true
}

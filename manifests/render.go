// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// Kubelet's pull policies that Overrides may ask for.
const (
	PullAlways       = "Always"
	PullIfNotPresent = "IfNotPresent"
	pullNever        = "Never"
)

// Overrides are the differences between a rendered pod manifest and its template. The zero value changes nothing.
type Overrides struct {
	// Tag returns the tag for a repository (after the rewrites); false keeps the written tag. A nil Tag keeps every
	// tag.
	Tag func(repository string, img Image) (tag string, ok bool)
	// Rewrites apply before Tag is called.
	Rewrites []Rewrite
	// PullPolicy is set on, or inserted into, every container and image volume with an editable reference: ""
	// (unchanged), PullAlways or PullIfNotPresent. An explicit Never stays and is reported.
	PullPolicy string
}

// Change is one replaced or inserted value.
type Change struct {
	Path     string // "spec.containers[0].imagePullPolicy"
	Line     int    // of the value in the template, or of the image before an inserted value; from 1
	From, To string // From is "" for an inserted value
}

// Rendered is a pod manifest made from a template.
type Rendered struct {
	*File
	Changes   []Change // in the order of the template's images; without changes Data equals the template
	Untouched []Image  // images of the template that could not be edited as asked, with their Reasons
}

// UnresolvedError names the images with a Placeholder and no known tag. One such image leaves the whole pod unrendered.
type UnresolvedError struct{ Images []Image }

func (e *UnresolvedError) Error() string {
	places := make([]string, len(e.Images))
	for i, img := range e.Images {
		places[i] = fmt.Sprintf("line %d: %s: %s", img.Line, img.Path, img.Reference)
	}
	return "no tag is known for " + Placeholder + ": " + strings.Join(places, "; ")
}

// Render makes a pod manifest from a template. It returns an error and no output if a placeholder is left, or if the
// parsed result is not the template with exactly the planned changes. disk is the parsed file on disk or nil: a result
// with the same bytes is returned as disk without parsing it again.
func (f *File) Render(o Overrides, disk *File) (Rendered, error) {
	if err := o.check(); err != nil {
		return Rendered{}, err
	}
	p := f.plan(o)
	references, err := p.references()
	if err != nil {
		return Rendered{}, err
	}
	p.policies(references)
	out, err := f.yaml.Splice(p.edits...)
	if err != nil {
		return Rendered{}, err
	}
	after, err := p.prove(out, disk)
	if err != nil {
		return Rendered{}, fmt.Errorf("rendered pod manifest: %w", err)
	}
	if err := unresolved(f.Images, after.Images); err != nil {
		return Rendered{}, err
	}
	return Rendered{File: after, Changes: slices.Concat(p.made...), Untouched: slices.Concat(p.left...)}, nil
}

// unresolved also checks arguments, because kubelet would run them with the placeholder. It names the places in the
// template.
func unresolved(template, rendered []Image) error {
	var left []Image
	for i, img := range rendered {
		if img.Document == 0 && strings.Contains(img.Reference, Placeholder) {
			left = append(left, template[i])
		}
	}
	if left == nil {
		return nil
	}
	return &UnresolvedError{Images: left}
}

func (o Overrides) check() error {
	switch o.PullPolicy {
	case "", PullAlways, PullIfNotPresent:
	default:
		return fmt.Errorf("pull policy %q: want %s, %s or nothing", o.PullPolicy, PullAlways, PullIfNotPresent)
	}
	return CheckRewrites(o.Rewrites)
}

// wanted returns the new reference of an editable image. known is false if it needs a tag and none is known.
func (o Overrides) wanted(img Image) (want string, known bool, err error) {
	ref := SplitReference(img.Reference)
	ref.Name, known = Rewritten(ref.Name, o.Rewrites), true
	if o.Tag != nil {
		var tag string
		if tag, known = o.Tag(ref.Name, img); known {
			ref.Tag = tag
		}
	}
	if !ref.valid() || known && o.Tag != nil && ref.Tag == "" {
		return "", known, fmt.Errorf("line %d: %s: %q is no tagged image reference", img.Line, img.Path, ref.String())
	}
	return ref.String(), known, nil
}

// plan collects the edits of one template. For each edit it also keeps the expected node of the parsed result, which
// prove compares.
type plan struct {
	*File
	overrides Overrides
	edits     []yamledit.Edit
	intended  map[*yaml.Node]*yaml.Node // edited nodes and their expected results
	made      [][]Change                // by site, the reference before the policy
	left      [][]Image                 // by site, in the same order
}

func (f *File) plan(o Overrides) plan {
	return plan{
		File: f, overrides: o, intended: map[*yaml.Node]*yaml.Node{},
		made: make([][]Change, len(f.sites)), left: make([][]Image, len(f.sites)),
	}
}

// replace plans a new value for a scalar.
func (p *plan) replace(n *yaml.Node, want string) error {
	edit, err := p.yaml.Replace(n, want)
	if err != nil {
		return err
	}
	other := *n
	other.Value = want
	p.edits, p.intended[n] = append(p.edits, edit), &other
	return nil
}

func (p *plan) note(site int, path string, line int, from, to string) {
	p.made[site] = append(p.made[site], Change{Path: path, Line: line, From: from, To: to})
}

func (p *plan) leave(site int, reason string) {
	img := p.Images[site]
	img.Reason = reason
	p.left[site] = append(p.left[site], img)
}

// values groups, in order, the sites that share one scalar through anchors.
type values struct {
	order []*yaml.Node
	sites map[*yaml.Node][]int
	want  map[int]string
}

func newValues() *values {
	return &values{sites: map[*yaml.Node][]int{}, want: map[int]string{}}
}

func (v *values) add(n *yaml.Node, site int, want string) {
	n = yamledit.Resolve(n)
	if v.sites[n] == nil {
		v.order = append(v.order, n)
	}
	v.sites[n] = append(v.sites[n], site)
	v.want[site] = want
}

// agreed returns the value if all sites of a scalar want the same one.
func (v *values) agreed(n *yaml.Node) (string, bool) {
	sites := v.sites[n]
	for _, s := range sites[1:] {
		if v.want[s] != v.want[sites[0]] {
			return "", false
		}
	}
	return v.want[sites[0]], true
}

// references plans the edits of all image references.
func (p *plan) references() (*values, error) {
	shared := newValues()
	for i, img := range p.Images {
		if !img.Editable {
			p.leave(i, img.Reason)
			continue
		}
		want, known, err := p.overrides.wanted(img)
		if err != nil {
			return nil, err
		}
		if !known && want == img.Reference {
			p.leave(i, ReasonNoTag)
		}
		shared.add(p.sites[i].value, i, want)
	}
	for _, n := range shared.order {
		if err := p.replaceReference(shared, n); err != nil {
			return nil, err
		}
	}
	return shared, nil
}

func (p *plan) replaceReference(shared *values, n *yaml.Node) error {
	want, ok := shared.agreed(n)
	if !ok {
		for _, i := range shared.sites[n] {
			if shared.want[i] != n.Value {
				p.leave(i, ReasonShared)
			}
		}
		return nil
	}
	if want == n.Value {
		return nil
	}
	for _, i := range shared.sites[n] {
		img := p.Images[i]
		p.note(i, img.Path, img.Line, img.Reference, want)
	}
	return p.replace(n, want)
}

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

var errNotAsIntended = errors.New("differs from its template in more than was intended")

// prove parses the result and compares all its documents with the template's trees and the planned changes. If parsed
// is not nil and has the same bytes, prove uses it instead of parsing.
func (p *plan) prove(out []byte, parsed *File) (*File, error) {
	if parsed == nil || !bytes.Equal(parsed.Data, out) {
		var err error
		if parsed, err = Parse(out); err != nil {
			return nil, err
		}
	}
	if len(parsed.yaml.Documents) != len(p.yaml.Documents) {
		return nil, errNotAsIntended
	}
	for i, doc := range p.yaml.Documents {
		if !yamledit.Same(doc, parsed.yaml.Documents[i], p.intended) {
			return nil, errNotAsIntended
		}
	}
	return parsed, nil
}

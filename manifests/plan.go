// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/yamledit"
)

// plan collects the edits of one template. Beside the bytes of each edit it keeps
// how the parsed tree must look afterwards, which prove applies and compares.
type plan struct {
	*podFile
	overrides Overrides
	edits     []yamledit.Edit
	intended  []func() // each changes the template's tree as its edit changes the bytes
	made      []ofSite[Change]
	left      []ofSite[Image]
}

// ofSite ties what was done or left to the number of its site.
type ofSite[T any] struct {
	site int
	what T
}

// change records an edit together with its effect on the tree.
func (p *plan) change(edit yamledit.Edit, effect func()) {
	p.edits = append(p.edits, edit)
	p.intended = append(p.intended, effect)
}

func (p *plan) note(site int, path string, line int, from, to string) {
	p.made = append(p.made, ofSite[Change]{site, Change{Path: path, Line: line, From: from, To: to}})
}

func (p *plan) leave(site int, reason string) {
	img := p.sites[site].image
	img.Reason = reason
	p.left = append(p.left, ofSite[Image]{site, img})
}

// inOrder sorts by site; of one site the reference comes before the policy, as
// they were planned.
func inOrder[T any](list []ofSite[T]) []T {
	slices.SortStableFunc(list, func(a, b ofSite[T]) int { return cmp.Compare(a.site, b.site) })
	var out []T
	for _, item := range list {
		out = append(out, item.what)
	}
	return out
}

// values groups the sites that share one scalar through anchors, in order.
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

// agreed is the value that all sites of a scalar want.
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
func (p *plan) references() error {
	shared := newValues()
	for i, s := range p.sites {
		if !s.image.Editable {
			p.leave(i, s.image.Reason)
			continue
		}
		want, known, err := p.overrides.wanted(s.image)
		if err != nil {
			return err
		}
		if !known && want == s.image.Reference {
			p.leave(i, ReasonNoTag)
		}
		shared.add(s.value, i, want)
	}
	for _, n := range shared.order {
		if err := p.replaceReference(shared, n); err != nil {
			return err
		}
	}
	return nil
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
	edit, err := p.file.Replace(n, want)
	if err != nil {
		return err
	}
	for _, i := range shared.sites[n] {
		img := p.sites[i].image
		p.note(i, img.Path, img.Line, img.Reference, want)
	}
	p.change(edit, func() { n.Value = want })
	return nil
}

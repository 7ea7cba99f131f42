// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

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

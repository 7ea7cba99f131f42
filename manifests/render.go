// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"slices"
	"strings"
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

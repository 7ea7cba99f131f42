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

// Overrides say what a rendered pod manifest shall have in place of the
// template's. The zero value changes nothing.
type Overrides struct {
	// Tag returns the tag for a repository (as it is after the rewrite); false
	// keeps what is written. Nil keeps every tag.
	Tag func(repository string, img Image) (tag string, ok bool)
	// Rewrites are made before Tag is asked.
	Rewrites []Rewrite
	// PullPolicy is set on, or inserted into, every container and image volume
	// whose reference may be edited: "" (leave), PullAlways or PullIfNotPresent.
	// An explicit Never stays and is reported.
	PullPolicy string
}

// Change is one replaced or inserted value.
type Change struct {
	Path     string // "spec.containers[0].imagePullPolicy"
	Line     int    // of the value in the template, or of the image it was put behind; from 1
	From, To string // From is "" for an inserted value
}

// Rendered is a pod manifest made from a template.
type Rendered struct {
	*File
	Changes   []Change // in order of the template's images; none: Data equals the template
	Untouched []Image  // of the template, with their Reasons: not to be edited, or asked for in vain
}

// UnresolvedError names the images whose Placeholder no tag is known for. Nothing
// is rendered then: one unresolved image withholds its whole pod.
type UnresolvedError struct{ Images []Image }

func (e *UnresolvedError) Error() string {
	places := make([]string, len(e.Images))
	for i, img := range e.Images {
		places[i] = fmt.Sprintf("line %d: %s: %s", img.Line, img.Path, img.Reference)
	}
	return "no tag is known for " + Placeholder + ": " + strings.Join(places, "; ")
}

// Render makes a pod manifest from a template. It returns an error and no output
// when a placeholder is left, or when the result, parsed again, is not the
// template with exactly these changes. A result that has the bytes of disk is not
// parsed again, but returned as disk; nil: there is none.
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

// unresolved looks at what kubelet would get: an argument with a placeholder is
// as wrong as an image. It names the places in the template.
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

// wanted is the reference that an editable image shall have. known is false
// where a tag was asked for and none is known.
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

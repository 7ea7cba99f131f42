// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/yamledit"
)

// Pinned names one image of a pod manifest and what it shall be.
type Pinned struct {
	Kind      Kind   // KindContainer, KindInit or KindVolume
	Container string // its name, or that of the volume
	Reference string // with a digest: "r.example/velum:2@sha256:..."; or with a tag alone, to take a pin back
}

// Pin returns the pod manifest with each named image set to exactly its
// reference, and its pull policy to IfNotPresent: then kubelet starts it without
// a registry. An explicit Never stays, as it wants none either. Every other byte
// is kept, and the result is proved as Render does. Pinning twice is pinning once.
//
// It is an error, and nothing is pinned, where an image is not there, is there
// twice, or cannot be edited together with its pull policy: half a pin would let
// kubelet ask a registry after all.
func Pin(data []byte, pins []Pinned) ([]byte, error) { return Unpin(data, pins, PullIfNotPresent) }

// Unpin is Pin with another pull policy: that of before, to take a pin back.
func Unpin(data []byte, pins []Pinned, policy string) ([]byte, error) {
	f, err := load(data)
	if err != nil {
		return nil, err
	}
	p := plan{podFile: f, overrides: Overrides{PullPolicy: policy}}
	if err := p.pins(pins); err != nil {
		return nil, err
	}
	p.policies()
	for _, left := range inOrder(p.left) {
		if left.Reason != ReasonPolicyNever {
			return nil, notPinned(left)
		}
	}
	out, err := f.file.Splice(p.edits...)
	if err != nil {
		return nil, err
	}
	if _, err := p.prove(out); err != nil {
		return nil, fmt.Errorf("pinned pod manifest: %w", err)
	}
	return out, nil
}

func notPinned(img Image) error {
	return fmt.Errorf("line %d: %s: not to be pinned: %s", img.Line, img.Path, img.Reason)
}

// pins plans the edits of the references. Afterwards the sites to pin are the
// only editable ones, so that policies touches no others.
func (p *plan) pins(pins []Pinned) error {
	for i := range p.sites {
		p.sites[i].image.Editable = false
	}
	shared := newValues()
	for _, pin := range pins {
		i, err := p.siteOf(pin)
		if err != nil {
			return fmt.Errorf("%s %s: %w", pin.Kind, pin.Container, err)
		}
		p.sites[i].image.Editable = true
		shared.add(p.sites[i].value, i, pin.Reference)
	}
	u := countUses(p.file.Documents[0].Content[0])
	for _, n := range shared.order {
		if err := p.pinValue(shared, n, u); err != nil {
			return err
		}
	}
	return nil
}

// pinValue wants every place that an anchor gives the value to be pinned alike.
func (p *plan) pinValue(shared *values, n *yaml.Node, u uses) error {
	sites := shared.sites[n]
	if u != nil && u[n] != len(sites) && n.Value != shared.want[sites[0]] {
		p.leave(sites[0], ReasonShared)
		return nil
	}
	return p.replaceReference(shared, n)
}

// siteOf finds the one place that a pin names.
func (p *plan) siteOf(pin Pinned) (int, error) {
	switch ref := SplitReference(pin.Reference); {
	case pin.Kind != KindContainer && pin.Kind != KindInit && pin.Kind != KindVolume:
		return 0, fmt.Errorf("not a kind that is pinned")
	case ref.Digest == "" && ref.Tag == "" || !ref.valid():
		return 0, fmt.Errorf("%q is no image reference with a digest or a tag", pin.Reference)
	}
	found := -1
	for i, s := range p.sites {
		if s.image.Document > 0 || s.image.Kind != pin.Kind || s.image.Container != pin.Container {
			continue
		}
		if found >= 0 {
			return 0, &yamledit.Error{Line: s.image.Line, Problem: "a second one of this name"}
		}
		found = i
	}
	if found < 0 || pin.Container == "" {
		return 0, fmt.Errorf("not in the pod manifest")
	}
	img := p.sites[found].image
	switch {
	case img.Editable:
		return 0, fmt.Errorf("to be pinned twice")
	case img.Reason != "" && img.Reason != ReasonDigest && img.Reason != ReasonShared: // of the last, pinValue judges
		return 0, notPinned(img)
	}
	return found, nil
}

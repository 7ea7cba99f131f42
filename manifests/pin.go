// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// Pinned names one image of a pod manifest and its new reference.
type Pinned struct {
	Kind      Kind   // KindContainer, KindInit or KindVolume
	Container string // its name, or the name of the volume
	Reference string // with a digest: "r.example/velum:2@sha256:..."; or with only a tag, to undo a pin
}

// Pin returns the pod manifest with each named image set to exactly its reference and its pull policy set to policy.
// With IfNotPresent, kubelet starts the image without a registry; the previous policy undoes a pin. An explicit Never
// stays, because it needs no registry either. Every other byte is kept, and Pin checks its result as Render does.
// Pinning is idempotent.
//
// Pin returns an error, and pins nothing, if an image is missing, is named twice, or cannot be edited together with its
// pull policy: after half a pin kubelet would still need a registry.
func (f *File) Pin(pins []Pinned, policy string) (*File, error) {
	p := f.plan(Overrides{PullPolicy: policy})
	references, err := p.pins(pins)
	if err != nil {
		return nil, err
	}
	p.policies(references)
	for _, left := range slices.Concat(p.left...) {
		if left.Reason != ReasonPolicyNever {
			return nil, notPinned(left)
		}
	}
	out, err := f.yaml.Splice(p.edits...)
	if err != nil {
		return nil, err
	}
	pinned, err := p.prove(out, nil)
	if err != nil {
		return nil, fmt.Errorf("pinned pod manifest: %w", err)
	}
	return pinned, nil
}

func notPinned(img Image) error {
	return fmt.Errorf("line %d: %s: not to be pinned: %s", img.Line, img.Path, img.Reason)
}

// pins plans the edits of the references.
func (p *plan) pins(pins []Pinned) (*values, error) {
	shared := newValues()
	for _, pin := range pins {
		i, err := p.siteOf(pin)
		if _, twice := shared.want[i]; err == nil && twice {
			err = errors.New("to be pinned twice")
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", pin.Kind, pin.Container, err)
		}
		shared.add(p.sites[i].value, i, pin.Reference)
	}
	for _, n := range shared.order {
		// Every place that shares the value through an anchor must get the same pin.
		if sites := shared.sites[n]; p.isShared(n, sites) && n.Value != shared.want[sites[0]] {
			p.leave(sites[0], ReasonShared)
		} else if err := p.replaceReference(shared, n); err != nil {
			return nil, err
		}
	}
	return shared, nil
}

// siteOf finds the only place that a pin matches.
func (p *plan) siteOf(pin Pinned) (int, error) {
	switch ref := SplitReference(pin.Reference); {
	case pin.Kind != KindContainer && pin.Kind != KindInit && pin.Kind != KindVolume:
		return 0, fmt.Errorf("not a kind that is pinned")
	case ref.Digest == "" && ref.Tag == "" || !ref.valid():
		return 0, fmt.Errorf("%q is no image reference with a digest or a tag", pin.Reference)
	}
	found := -1
	for i, img := range p.Images {
		if img.Document > 0 || img.Kind != pin.Kind || img.Container != pin.Container {
			continue
		}
		if found >= 0 {
			return 0, &yamledit.Error{Line: img.Line, Problem: "another one has the same name"}
		}
		found = i
	}
	if found < 0 || pin.Container == "" {
		return 0, fmt.Errorf("not in the pod manifest")
	}
	switch img := p.Images[found]; img.Reason {
	case "", ReasonDigest, ReasonShared: // pins handles ReasonShared
		return found, nil
	default:
		return 0, notPinned(img)
	}
}

// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Override is a pod manifest that names digests instead of what it follows, which
// kubelet starts without a registry: its pod was rolled back, or lost the registry
// in the middle of an apply. Rendering respects it until a release with another
// digest is approved.
type Override struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	ByHand bool      `json:"byHand,omitempty"` // a person rolled the pod back
	// From is the digest of the pod manifest that it takes the place of: somebody who
	// has written another one meanwhile has a better idea.
	From digest.Digest `json:"from,omitempty"`
	Data string        `json:"data,omitempty"` // the pod manifest; empty: a place has moved on, and it is rendered
	// Images are what it names, by place ("container velum").
	Images map[string]PinnedImage `json:"images"`
	// Pending: the pod is to be brought to it.
	Pending bool `json:"pending,omitempty"`
}

// Note says what an override is to people.
func (o Override) Note() string {
	since := ""
	if !o.At.IsZero() {
		since = " since " + o.At.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("named by its digest%s, until a newer release is applied: %s", since, o.Reason)
}

// PinnedImage is an image by its digest: what a pod manifest names, or a container is
// to run.
type PinnedImage struct {
	release.Pin
	Config digest.Digest `json:"config,omitempty"` // its image id; empty: not known
	Tag    string        `json:"tag"`              // its release's best name, for people
	Follow string        `json:"follow"`           // the tag that stands for it where no digest does
	// Always: its pull policy was Always, and is again where there is no template.
	Always bool `json:"always,omitempty"`
}

// reference is how a pod manifest names a digest: the tag says to people which
// release it is, and CRI looks the digest up.
func (o PinnedImage) reference() string { return o.Repository + ":" + o.Tag + "@" + o.Digest.String() }

// Pin makes the override that has the images of a pod manifest named by digest. to
// says which; what it knows nothing of stays as it is.
func Pin(text []byte, reason string, now time.Time, to func(manifests.Image) PinnedImage) (Override, error) {
	pod, err := manifests.Parse(text)
	if err != nil {
		return Override{}, fmt.Errorf("pod manifest: %w", err)
	}
	o := Override{At: now.UTC(), Reason: reason, Images: map[string]PinnedImage{}, Pending: true}
	var pins []manifests.Pinned
	for _, img := range pod.Images {
		ref := manifests.SplitReference(img.Reference)
		if img.Document != 0 || !node.IsContainer(img) || ref.Digest != "" {
			continue // what names a digest already follows nothing
		}
		at := to(img)
		if at.Digest == "" {
			continue
		}
		at.Tag, at.Follow, at.Always = cmp.Or(at.Tag, ref.Tag), ref.Tag, node.PullPolicyOf(img) == manifests.PullAlways
		o.Images[node.PlaceOf(img)] = at
		pins = append(pins, manifests.Pinned{Kind: img.Kind, Container: img.Container, Reference: at.reference()})
	}
	out, err := manifests.Pin(text, pins)
	o.Data = string(out)
	return o, err
}

// Names reports whether a reference is the digest that stands in its place.
func (o Override) Names(i manifests.Image) (PinnedImage, bool) {
	at, ok := o.Images[node.PlaceOf(i)]
	if !ok || digest.Digest(manifests.SplitReference(i.Reference).Digest) != at.Digest {
		return PinnedImage{}, false
	}
	return at, true
}

// Unpinned is a pod manifest with the tags that it followed before: where there is
// no template, it says what is wanted.
func (o Override) Unpinned(file node.PodFile) (node.PodFile, error) {
	pod, err := file.Parse()
	if err != nil {
		return file, nil //nolint:nilerr // who reads the file next says so
	}
	pins := map[string][]manifests.Pinned{}
	for _, img := range pod.Images {
		if at, ok := o.Names(img); ok {
			follow, policy := release.Reference{Repository: at.Repository, Tag: at.Follow}, manifests.PullIfNotPresent
			if at.Always {
				policy = manifests.PullAlways
			}
			pins[policy] = append(pins[policy], manifests.Pinned{
				Kind: img.Kind, Container: img.Container, Reference: follow.String(),
			})
		}
	}
	file.Parsed = nil
	for _, policy := range slices.Sorted(maps.Keys(pins)) {
		if file.Data, err = manifests.Unpin(file.Data, pins[policy], policy); err != nil {
			return file, err
		}
	}
	return file, nil
}

// Pins puts digests in some places again.
func (o Override) Pins(places []string) []manifests.Pinned {
	var out []manifests.Pinned
	for _, place := range places {
		kind, container, _ := strings.Cut(place, " ")
		out = append(out, manifests.Pinned{
			Kind: manifests.Kind(kind), Container: container, Reference: o.Images[place].reference(),
		})
	}
	return out
}

// isIn reports whether a pod manifest names any of the digests.
func (o Override) isIn(disk string) bool {
	for _, at := range o.Images {
		if strings.Contains(disk, "@"+at.Digest.String()) {
			return true
		}
	}
	return false
}

// Fits reports whether a pod manifest is the one that a pending override takes the
// place of, or has it already.
func (o Override) Fits(disk string) bool {
	return o.From == "" || o.From == digest.FromString(disk) || o.Data == disk
}

// MoveOn ends the places of an override that were proved to run another digest. data is
// what the pod manifest became; nil: it stays.
func (r *Record) MoveOn(file string, data []byte, proved []Proved) {
	var ends []string
	for _, p := range proved {
		if at, ok := r.Overrides[file].Images[p.Place]; ok && at.Digest != p.Digest {
			ends = append(ends, p.Place)
		}
	}
	r.EndPlaces(file, data, ends)
}

// EndPlaces ends some places of an override, when its pod manifest became data (nil: it
// stays). Another text than its own says that it is not wanted any more.
func (r *Record) EndPlaces(file string, data []byte, places []string) {
	o, ok := r.Overrides[file]
	if !ok || len(places) == 0 && (data == nil || o.Data == string(data)) {
		return
	}
	o.Images, o.Data = maps.Clone(o.Images), ""
	for _, place := range places {
		delete(o.Images, place)
	}
	r.Overrides.Set(file, o)
	if len(o.Images) == 0 {
		r.Overrides.Delete(file)
	}
}

// Releases are what an override names, for people.
func (o Override) Releases() string { return strings.Join(o.tags(), ", ") }

func (o Override) tags() []string {
	var out []string
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		out = append(out, o.Images[place].Tag)
	}
	return slices.Compact(out)
}

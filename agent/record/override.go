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
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Override is a pod manifest with digests in place of followed tags, so that kubelet starts it without a registry: the
// pod was rolled back, or the registry went away during an apply. Rendering keeps it until a release with another
// digest is applied.
type Override struct {
	At     time.Time    `json:"at"`
	Reason string       `json:"reason"`
	ByHand bool         `json:"byHand,omitempty"` // a person rolled the pod back
	By     status.Actor `json:"by,omitzero"`      // that person
	// Set is the set with which the pod is rolled back although it came up; empty if there is none.
	Set string `json:"set,omitempty"`
	// From is the digest of the pod manifest that it replaces. If the one on disk differs, a person edited it, and the
	// override is dropped.
	From digest.Digest `json:"from,omitempty"`
	// Data is the pod manifest; empty if it must be rendered, because a newer release has replaced some of Images.
	Data    string                 `json:"data,omitempty"`
	Images  map[string]PinnedImage `json:"images"`            // by place ("container velum")
	Pending bool                   `json:"pending,omitempty"` // not applied yet
	// Broken are the containers that did not run before: the health check leaves them out.
	Broken []string `json:"broken,omitempty"`
	// Request is set while a person's rollback has not begun.
	Request *Request `json:"request,omitempty"`
}

// Note describes an override for people.
func (o Override) Note() string {
	since := ""
	if !o.At.IsZero() {
		since = " since " + o.At.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("named by its digest%s, until a newer release is applied: %s", since, o.Reason)
}

// PinnedImage is an image that a pod manifest pins to its digest, or that a container should run.
type PinnedImage struct {
	release.Pin
	Config digest.Digest `json:"config,omitempty"` // its image id; empty if unknown
	Tag    string        `json:"tag"`              // the release's best name
	Follow string        `json:"follow"`           // the tag in the pod manifest without the override
	// Always: the pull policy was Always, and a pod manifest without template returns to it.
	Always bool `json:"always,omitempty"`
	// Replaces is the name of the release that a rollback replaces; empty if it replaces none here.
	Replaces string `json:"replaces,omitempty"`
}

// reference returns the image reference for a pod manifest. CRI ignores the tag.
func (p PinnedImage) reference() string { return p.Repository + ":" + p.Tag + "@" + p.Digest.String() }

// Pin returns a pending override that pins the images of a pod manifest. to returns the digest of an image; without one
// the image stays as it is. It must return none for a digest written by a person.
func Pin(text []byte, reason string, now time.Time, to func(manifests.Image) PinnedImage) (Override, error) {
	pod, err := manifests.Parse(text)
	if err != nil {
		return Override{}, fmt.Errorf("pod manifest: %w", err)
	}
	o := Override{At: now.UTC(), Reason: reason, Images: map[string]PinnedImage{}, Pending: true}
	var pins []manifests.Pinned
	for _, img := range pod.Images {
		ref := manifests.SplitReference(img.Reference)
		if img.Document != 0 || !node.IsContainer(img) {
			continue
		}
		at := to(img)
		if at.Digest == "" {
			continue
		}
		at.Tag, at.Follow, at.Always = cmp.Or(at.Tag, ref.Tag), ref.Tag, node.PullPolicyOf(img) == manifests.PullAlways
		o.Images[node.PlaceOf(img)] = at
		pins = append(pins, manifests.Pinned{Kind: img.Kind, Container: img.Container, Reference: at.reference()})
	}
	pinned, err := pod.Pin(pins, manifests.PullIfNotPresent)
	if err != nil {
		return Override{}, err
	}
	o.Data = string(pinned.Data)
	return o, nil
}

// Names returns the image of the override that an image reference names.
func (o Override) Names(i manifests.Image) (PinnedImage, bool) {
	at, ok := o.Images[node.PlaceOf(i)]
	if !ok || digest.Digest(manifests.SplitReference(i.Reference).Digest) != at.Digest {
		return PinnedImage{}, false
	}
	return at, true
}

// Unpinned returns a pod manifest with the tags that it followed before the override.
func (o Override) Unpinned(file node.PodFile) (node.PodFile, error) {
	pod, err := file.Parse()
	if err != nil {
		return file, nil //nolint:nilerr // the survey reports it
	}
	return o.retagged(file, pod, func(_ manifests.Image, at PinnedImage) string {
		if at.Always {
			return manifests.PullAlways
		}
		return manifests.PullIfNotPresent
	})
}

// WithTags returns a pod manifest with the tags that it followed before the override, and its current pull policies.
func (o Override) WithTags(file node.PodFile) (node.PodFile, error) {
	pod, err := file.Parse()
	if err != nil {
		return file, nil //nolint:nilerr // the survey reports it
	}
	return o.retagged(file, pod, func(img manifests.Image, _ PinnedImage) string { return node.PullPolicyOf(img) })
}

// retagged returns a pod manifest with the followed tags in the override's places.
func (o Override) retagged(
	file node.PodFile, pod *manifests.File, pullPolicy func(manifests.Image, PinnedImage) string,
) (node.PodFile, error) {
	pins := map[string][]manifests.Pinned{}
	for _, img := range pod.Images {
		if at, ok := o.Names(img); ok {
			follow, policy := release.Reference{Repository: at.Repository, Tag: at.Follow}, pullPolicy(img, at)
			pins[policy] = append(pins[policy], manifests.Pinned{
				Kind: img.Kind, Container: img.Container, Reference: follow.String(),
			})
		}
	}
	for _, policy := range slices.Sorted(maps.Keys(pins)) {
		var err error
		if pod, err = pod.Pin(pins[policy], policy); err != nil {
			return node.PodFile{}, err
		}
	}
	return file.Replaced(pod), nil
}

// Pins returns the edits that write the override's digests at places.
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

// IsFor reports whether a pod manifest is the one that a pending override replaces, or the
// override itself.
func (o Override) IsFor(disk string) bool {
	return o.From == "" || o.From == digest.FromString(disk) || o.Data == disk
}

// EndHealthyPlaces ends the override at the places that passed a health check with another digest. data is the new pod
// manifest; nil if it has not changed.
func (r *Record) EndHealthyPlaces(file string, data []byte, healthy []Healthy) {
	var ends []string
	for _, p := range healthy {
		if at, ok := r.Overrides[file].Images[p.Place]; ok && at.Digest != p.Digest {
			ends = append(ends, p.Place)
		}
	}
	r.EndPlaces(file, data, ends)
}

// EndPlaces ends an override at some places. data is the new pod manifest; nil if it has not changed. A pod manifest
// other than the override's replaces its Data.
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

// Releases returns the releases of an override, for people.
func (o Override) Releases() string { return strings.Join(o.tags(), ", ") }

func (o Override) tags() []string {
	var out []string
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		out = append(out, o.Images[place].Tag)
	}
	return slices.Compact(out)
}

// Request is a person's rollback that has not begun: nothing is denied and the pod is untouched. If it is held, it is
// over, so that the pod does not restart hours later.
type Request struct {
	Denies   map[string]Denial `json:"denies,omitempty"`   // the releases that the pod leaves, by "repository@digest"
	Together []string          `json:"together,omitempty"` // the pod manifests that are rolled back with it
	Replaces *Override         `json:"replaces,omitempty"` // the override before the request; nil: none
}

// RequestRollback records a person's rollback of a pod. A pending rollback that has begun, or that follows a failure,
// is completed as the person says; it cannot end without it.
func (r *Record) RequestRollback(file string, o Override, q Request) {
	before, is := r.Overrides[file]
	switch {
	case is && before.Pending && before.Request != nil:
		q.Replaces = before.Request.Replaces
	case is && !before.Pending:
		q.Replaces = &before
	}
	o.Request = &q
	r.Overrides.Set(file, o)
	if is && before.Pending && before.Request == nil {
		r.BeginRollback(file)
	}
}

// BeginRollback denies what the requested rollback of a pod replaces, and that of the pods that return with it: once
// one has begun, all of them return. It ends their approvals.
func (r *Record) BeginRollback(file string) {
	r.eachRequested(file, func(file string, o Override) {
		for key, d := range o.Request.Denies {
			r.Denied.Set(key, d)
		}
		o.Request = nil
		r.Approved.Delete(file)
		r.Overrides.Set(file, o)
	})
}

// EndRequest ends the requested rollback of a pod that has not begun, and those of the pods that would return with it.
func (r *Record) EndRequest(file string) {
	r.eachRequested(file, func(file string, o Override) {
		if r.Overrides.Delete(file); o.Request.Replaces != nil {
			r.Overrides.Set(file, *o.Request.Replaces)
		}
	})
}

// Hold records a person's hold. As it voids approvals, it ends the requested rollbacks of its images.
func (r *Record) Hold(repository string, h PersonHold) {
	r.Holds.Set(repository, h)
	for _, file := range slices.Sorted(maps.Keys(r.Overrides)) {
		for _, at := range r.Overrides[file].Images {
			if repository == AllImages || repository == at.Repository {
				r.EndRequest(file)
			}
		}
	}
}

// eachRequested calls do for the requested rollback of a pod and those that return with it.
func (r *Record) eachRequested(file string, do func(file string, o Override)) {
	q := r.Overrides[file].Request
	if q == nil {
		return
	}
	for _, file := range append(slices.Clone(q.Together), file) {
		if o := r.Overrides[file]; o.Request != nil {
			do(file, o)
		}
	}
}

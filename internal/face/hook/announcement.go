// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"slices"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// SchemaVersion is the version of Announcement and of Change as JSON. It changes only with the meaning of a field, not
// with new fields.
const SchemaVersion = 1

const (
	// maxImages limits the images and the pods. A node has some dozens.
	maxImages = 256
	// maxFailed limits the failed releases of an image.
	maxFailed = 8
	// maxText limits a text for people, in bytes.
	maxText = 512
)

// Announcement is the part of the status for hooks.
type Announcement struct {
	SchemaVersion int     `json:"schemaVersion"`
	State         string  `json:"state"` // as in the status
	Reason        string  `json:"reason"`
	Images        []Image `json:"images"`
	Pods          []Pod   `json:"podManifests"`
}

// Image is one image of one container.
type Image struct {
	Image       string   `json:"image"` // repository
	Container   string   `json:"container"`
	PodManifest string   `json:"podManifest"`
	Running     Named    `json:"running"` // empty if nothing runs
	Offered     Named    `json:"offered"` // empty if there is no offer
	Change      string   `json:"change"`
	Staged      bool     `json:"staged"`
	PickedUp    bool     `json:"pickedUp"`
	Failed      []Failed `json:"failed"` // releases that did not come up on this node, or were rolled back
	Error       string   `json:"error"`
}

// Named is a digest with its best name.
type Named struct {
	Tag    string `json:"tag"`
	Digest string `json:"digest"`
}

// Failed is a release that this node refuses since it failed.
type Failed struct {
	Tag    string `json:"tag"`
	Reason string `json:"reason"`
}

// Pod is a pod manifest with a failure.
type Pod struct {
	PodManifest string `json:"podManifest"`
	Error       string `json:"error"`
}

// announce returns the announcement of a status.
func announce(s status.Status, last Announcement) Announcement {
	a := Announcement{
		SchemaVersion: SchemaVersion, State: string(s.State), Reason: outside.Line(s.Reason, maxText),
		Images: []Image{}, Pods: []Pod{},
	}
	for _, i := range s.Images[:min(len(s.Images), maxImages)] {
		a.Images = append(a.Images, imageOf(i, s.State))
	}
	for _, p := range s.PodManifests[:min(len(s.PodManifests), maxImages)] {
		if p.Error != "" {
			a.Pods = append(a.Pods, Pod{PodManifest: p.PodManifest, Error: outside.Line(p.Error, maxText)})
		}
	}
	if len(s.PodManifests) > 0 {
		return a
	}
	return a.after(last)
}

// after keeps the last known data of a node that could not be observed.
func (a Announcement) after(last Announcement) Announcement {
	if a.State == string(status.StateFailed) && len(a.Images)+len(a.Pods) == 0 && last.Images != nil {
		a.Images, a.Pods = last.Images, last.Pods
	}
	return a
}

func imageOf(i status.ImageStatus, state status.State) Image {
	out := Image{
		Image: i.Image, Container: i.Container, PodManifest: i.PodManifest, Change: i.Change,
		Running: named(i.Running), Offered: named(i.Offered), Staged: i.Staged, PickedUp: i.PickedUp, Failed: []Failed{},
	}
	for _, r := range i.Refused {
		if r.Rule == policy.RuleFailed && len(out.Failed) < maxFailed {
			out.Failed = append(out.Failed, Failed{Tag: r.Tag, Reason: outside.Line(r.Reason, maxText)})
		}
	}
	if state == status.StateFailed { // an unreachable registry is another state
		out.Error = outside.Line(i.Error, maxText)
	}
	return out
}

func named(n *status.Named) Named {
	if n == nil {
		return Named{}
	}
	return Named{Tag: n.Tag, Digest: n.Digest.String()}
}

// same reports whether only the texts of errors differ: they contain times and counts.
func (a Announcement) same(b Announcement) bool {
	return a.SchemaVersion == b.SchemaVersion && a.State == b.State &&
		slices.EqualFunc(a.Images, b.Images, Image.same) && slices.EqualFunc(a.Pods, b.Pods, Pod.same)
}

func (i Image) same(j Image) bool {
	return i.key() == j.key() && i.Running == j.Running && i.Offered == j.Offered && i.Change == j.Change &&
		i.Staged == j.Staged && (i.Error == "") == (j.Error == "") &&
		slices.EqualFunc(i.Failed, j.Failed, Failed.same)
}

func (p Pod) same(q Pod) bool {
	return p.PodManifest == q.PodManifest && (p.Error == "") == (q.Error == "")
}

func (f Failed) same(g Failed) bool { return f.Tag == g.Tag }

// place is the place of an image.
type place struct{ podManifest, container, image string }

func (i Image) key() place { return place{i.PodManifest, i.Container, i.Image} }

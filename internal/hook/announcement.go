// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"slices"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// SchemaVersion is the version of Announcement and of Change as JSON. It grows only
// when a field changes its meaning; new fields do not count.
const SchemaVersion = 1

const (
	// maxImages bounds the images and the pods. A node has some dozens.
	maxImages = 256
	// maxFailed bounds the releases that an image has failed with.
	maxFailed = 8
	// maxText bounds a text for people, in bytes.
	maxText = 512
)

// Announcement is the part of the status that hooks get.
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
	Running     Named    `json:"running"` // empty: nothing runs
	Offered     Named    `json:"offered"` // empty: nothing is
	Change      string   `json:"change"`
	Staged      bool     `json:"staged"`
	Adopted     bool     `json:"adopted"`
	Failed      []Failed `json:"failed"` // what did not come up on this node, or was rolled back
	Error       string   `json:"error"`
}

// Named is a digest with the best name there is for it.
type Named struct {
	Tag    string `json:"tag"`
	Digest string `json:"digest"`
}

// Failed is a release that is refused on this node since it was tried.
type Failed struct {
	Tag    string `json:"tag"`
	Reason string `json:"reason"`
}

// Pod is a pod manifest with which something did not work.
type Pod struct {
	PodManifest string `json:"podManifest"`
	Error       string `json:"error"`
}

// announce is the announcement of a status.
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

// after keeps what is known of the node where it could not be observed.
func (a Announcement) after(last Announcement) Announcement {
	if a.State == string(status.StateFailed) && len(a.Images)+len(a.Pods) == 0 && last.Images != nil {
		a.Images, a.Pods = last.Images, last.Pods
	}
	return a
}

func imageOf(i status.ImageStatus, state status.State) Image {
	out := Image{
		Image: i.Image, Container: i.Container, PodManifest: i.PodManifest, Change: i.Change,
		Running: named(i.Running), Offered: named(i.Offered), Staged: i.Staged, Adopted: i.Adopted, Failed: []Failed{},
	}
	for _, r := range i.Refused {
		if r.Rule == policy.RuleFailed && len(out.Failed) < maxFailed {
			out.Failed = append(out.Failed, Failed{Tag: r.Tag, Reason: outside.Line(r.Reason, maxText)})
		}
	}
	if state == status.StateFailed { // that a registry is away is another state
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

// same reports whether nothing differs but the texts of errors: these have times and
// counts in them.
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

// place is where an image is used.
type place struct{ podManifest, container, image string }

func (i Image) key() place { return place{i.PodManifest, i.Container, i.Image} }

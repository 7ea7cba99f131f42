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
	Image       string       `json:"image"` // repository
	Container   string       `json:"container"`
	PodManifest string       `json:"podManifest"`
	Running     status.Named `json:"running"` // empty if nothing runs
	Offered     status.Named `json:"offered"` // empty if there is no offer
	Change      string       `json:"change"`
	Staged      bool         `json:"staged"`
	PickedUp    bool         `json:"pickedUp"`
	Failed      []Failed     `json:"failed"` // releases that did not come up on this node
	Error       string       `json:"error"`
	// Severity and Fixes are what the catalog says of the change to Offered.
	Severity string   `json:"severity,omitempty"`
	Fixes    []string `json:"fixes,omitempty"`
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
		if r.Rule == policy.RuleFailed && !r.ByHand && len(out.Failed) < maxFailed {
			out.Failed = append(out.Failed, Failed{Tag: r.Tag, Reason: outside.Line(r.Reason, maxText)})
		}
	}
	if i.Brings != nil {
		out.Severity, out.Fixes = string(i.Brings.Severity), i.Brings.Fixes
	}
	if state == status.StateFailed { // an unreachable registry is another state
		out.Error = outside.Line(i.Error, maxText)
	}
	return out
}

func named(n *status.Named) status.Named {
	if n == nil {
		return status.Named{}
	}
	return *n
}

// same reports whether only the texts of errors differ: they contain times and counts.
func (a Announcement) same(b Announcement) bool {
	return a.SchemaVersion == b.SchemaVersion && a.State == b.State &&
		slices.EqualFunc(a.Images, b.Images, Image.same) && slices.EqualFunc(a.Pods, b.Pods, Pod.same)
}

func (i Image) same(j Image) bool {
	return i.key() == j.key() && i.Running == j.Running && i.Offered == j.Offered && i.Change == j.Change &&
		i.Staged == j.Staged && i.Severity == j.Severity && slices.Equal(i.Fixes, j.Fixes) &&
		(i.Error == "") == (j.Error == "") &&
		slices.EqualFunc(i.Failed, j.Failed, Failed.same)
}

func (p Pod) same(q Pod) bool {
	return p.PodManifest == q.PodManifest && (p.Error == "") == (q.Error == "")
}

func (f Failed) same(g Failed) bool { return f.Tag == g.Tag }

// place is the place of an image.
type place struct{ podManifest, container, image string }

func (i Image) key() place { return place{i.PodManifest, i.Container, i.Image} }

// Change is the input of a hook: the changes of the images since the last one. The lists are never null.
type Change struct {
	SchemaVersion int    `json:"schemaVersion"`
	Node          string `json:"node"`  // its name
	State         string `json:"state"` // as in the status
	Was           string `json:"was"`   // the previous state; empty for the first change
	Reason        string `json:"reason"`
	Offered       []Item `json:"offered"` // found, but not yet on the node
	Staged        []Item `json:"staged"`  // on the node, waiting for approval
	Applied       []Item `json:"applied"` // runs another release than before
	Failed        []Item `json:"failed"`  // failed, with the reason
	Waiting       []Item `json:"waiting"` // all images that wait for approval now
}

// Item is one image of one container. Unknown fields are empty.
type Item struct {
	Image       string `json:"image,omitempty"` // repository; empty for the pod as a whole
	Container   string `json:"container,omitempty"`
	PodManifest string `json:"podManifest,omitempty"` // empty if there is no pod
	Change      string `json:"change,omitempty"`
	From        string `json:"from,omitempty"`     // running or previous tag
	To          string `json:"to,omitempty"`       // tag
	Digest      string `json:"digest,omitempty"`   // of To
	PickedUp    bool   `json:"pickedUp,omitempty"` // kubelet picked it up without an approval
	Reason      string `json:"reason,omitempty"`
	// Severity and Fixes are what the catalog says of an offer: low, moderate, important or critical.
	Severity string   `json:"severity,omitempty"`
	Fixes    []string `json:"fixes,omitempty"`
}

// Empty reports whether nothing has changed.
func (c Change) Empty() bool {
	return c.State == c.Was && len(c.Offered)+len(c.Staged)+len(c.Applied)+len(c.Failed) == 0
}

// kinds are the lists of changes.
var kinds = []struct {
	name string
	of   func(Change) []Item
}{
	{"offered", func(c Change) []Item { return c.Offered }},
	{"staged", func(c Change) []Item { return c.Staged }},
	{"applied", func(c Change) []Item { return c.Applied }},
	{"failed", func(c Change) []Item { return c.Failed }},
}

// Is reports whether the change is of one of the kinds: offered, staged, applied, failed, or state for another state of
// the node. Without kinds it returns true.
func (c Change) Is(wanted []string) bool {
	if len(wanted) == 0 || c.State != c.Was && slices.Contains(wanted, "state") {
		return true
	}
	for _, kind := range kinds {
		if len(kind.of(c)) > 0 && slices.Contains(wanted, kind.name) {
			return true
		}
	}
	return false
}

// since returns the difference between an earlier announcement and this one.
func (a Announcement) since(before Announcement) Change {
	c := Change{
		SchemaVersion: SchemaVersion, State: a.State, Was: before.State, Reason: a.Reason,
		Offered: []Item{}, Staged: []Item{}, Applied: []Item{}, Failed: []Item{}, Waiting: []Item{},
	}
	then := map[place]Image{}
	for _, i := range before.Images {
		then[i.key()] = i
	}
	for _, i := range a.Images {
		c.add(i, then[i.key()])
	}
	for _, p := range a.Pods {
		if !slices.ContainsFunc(before.Pods, p.same) {
			c.Failed = append(c.Failed, Item{PodManifest: p.PodManifest, Reason: p.Error})
		}
	}
	return c
}

func (c *Change) add(now, then Image) {
	offer := now.item()
	offer.Change, offer.From, offer.To = now.Change, now.Running.Tag, now.Offered.Tag
	offer.Digest = now.Offered.Digest.String()
	offer.Severity, offer.Fixes = now.Severity, now.Fixes
	if now.Offered.Digest != "" {
		isNew := now.Offered.Digest != then.Offered.Digest
		switch {
		case now.Staged:
			c.Waiting = append(c.Waiting, offer)
			if isNew || !then.Staged {
				c.Staged = append(c.Staged, offer)
			}
		case isNew:
			c.Offered = append(c.Offered, offer)
		}
	}
	if then.Running.Digest != "" && now.Running.Digest != "" && now.Running.Digest != then.Running.Digest {
		item := now.item()
		item.From, item.To, item.Digest = then.Running.Tag, now.Running.Tag, now.Running.Digest.String()
		item.PickedUp = now.PickedUp
		c.Applied = append(c.Applied, item)
	}
	for _, f := range now.Failed {
		if !slices.ContainsFunc(then.Failed, f.same) {
			item := now.item()
			item.To, item.Reason = f.Tag, f.Reason
			c.Failed = append(c.Failed, item)
		}
	}
	if now.Error != "" && then.Error == "" {
		item := now.item()
		item.Reason = now.Error
		c.Failed = append(c.Failed, item)
	}
}

func (i Image) item() Item {
	return Item{Image: i.Image, Container: i.Container, PodManifest: i.PodManifest}
}

// withLastRunning returns this announcement with the previous releases of containers that do not run now, so that the
// next running release is compared with them.
func (a Announcement) withLastRunning(before Announcement) Announcement {
	a.Images = slices.Clone(a.Images)
	for n, now := range a.Images {
		at := slices.IndexFunc(before.Images, func(then Image) bool { return then.key() == now.key() })
		if now.Running.Digest == "" && at >= 0 {
			a.Images[n].Running = before.Images[at].Running
		}
	}
	return a
}

// SPDX-License-Identifier: Apache-2.0

package hook

import "slices"

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
	offer.Change, offer.From, offer.To, offer.Digest = now.Change, now.Running.Tag, now.Offered.Tag, now.Offered.Digest
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
		item.From, item.To, item.Digest = then.Running.Tag, now.Running.Tag, now.Running.Digest
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

// SPDX-License-Identifier: Apache-2.0

package hook

import "slices"

// Change is what a hook gets: what became of the images since the last one. The lists are never null.
type Change struct {
	SchemaVersion int    `json:"schemaVersion"`
	State         string `json:"state"` // as in the status
	Was           string `json:"was"`   // then; empty: this is the first
	Reason        string `json:"reason"`
	Offered       []Item `json:"offered"` // found, and not on the node yet
	Staged        []Item `json:"staged"`  // on the node, and waits for approval
	Applied       []Item `json:"applied"` // runs another release than before, whichever
	Failed        []Item `json:"failed"`  // did not work; reason says what
	Waiting       []Item `json:"waiting"` // all that waits for approval now
}

// Item is one image of one container. What is not known is empty.
type Item struct {
	Image       string `json:"image,omitempty"` // repository; empty: of the pod as a whole
	Container   string `json:"container,omitempty"`
	PodManifest string `json:"podManifest,omitempty"` // empty: of no pod
	Change      string `json:"change,omitempty"`
	From        string `json:"from,omitempty"`    // tag that runs, or ran
	To          string `json:"to,omitempty"`      // tag
	Digest      string `json:"digest,omitempty"`  // of To
	Adopted     bool   `json:"adopted,omitempty"` // no person approved it: kubelet took it by itself
	Reason      string `json:"reason,omitempty"`
}

// Empty reports that nothing has changed.
func (c Change) Empty() bool {
	return c.State == c.Was && len(c.Offered)+len(c.Staged)+len(c.Applied)+len(c.Failed) == 0
}

// since is the difference between an earlier announcement and this one.
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
		item.Adopted = now.Adopted
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

// withLastRunning is this announcement with what ran before where nothing runs now, so
// that what runs next is another release.
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

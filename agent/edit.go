// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/manifests"
)

// The fields of a pod manifest that the agent changes.
const (
	EditImage      = "image"
	EditPullPolicy = "imagePullPolicy"
)

// Edit is what an apply, or a rollback, changes of one container, or volume.
type Edit struct {
	Container string `json:"container"`
	Field     string `json:"field"` // EditImage or EditPullPolicy
	From      string `json:"from"`  // of an image its release; "": nothing, or not written
	To        string `json:"to"`
}

// edits are what the offer of a pod changes: the images, and the pull policies that are
// written.
func (d *decider) edits(v podView, p PodPlan) []Edit {
	var out []Edit
	for _, i := range p.Images {
		if i.Change == "" {
			continue
		}
		e := Edit{Container: i.Want.Image.Container, Field: EditImage, From: i.From, To: i.Target.Name()}
		if e.From == e.To { // another name for the same software, or the same name for another
			e.From, e.To = i.Want.OnDisk.Tag, i.Target.Tag
		}
		if e.From == e.To {
			e.From, e.To = withDigest(e.From, i.Running.Digest), withDigest(e.To, i.Target.Digest)
		}
		if e.From != e.To {
			out = append(out, e)
		}
	}
	if v.disk == nil || !p.Waiting {
		return out
	}
	return append(out, policyEdits(*v.disk, p.Wanted)...)
}

func withDigest(tag string, d digest.Digest) string {
	if d == "" {
		return tag
	}
	return fmt.Sprintf("%s (%.12s)", tag, d.Encoded())
}

// policyEdits are the pull policies that differ between two pod manifests. A place that
// only one of them has is new, or gone.
func policyEdits(disk PodFile, wanted []byte) []Edit {
	was, errWas := disk.Parse()
	is, errIs := manifests.Parse(wanted)
	if errWas != nil || errIs != nil {
		return nil // who renders says so
	}
	before := map[string]manifests.Image{}
	for _, img := range was.Images {
		before[placeOf(img)] = img
	}
	var out []Edit
	for _, img := range is.Images {
		old, there := before[placeOf(img)]
		if there && pulled(img) && old.PullPolicy != img.PullPolicy {
			out = append(out, Edit{img.Container, EditPullPolicy, old.PullPolicy, img.PullPolicy})
		}
	}
	return out
}

// edits are what bringing a pod to an override changes of its images.
func (o Override) edits(p PodPlan) []Edit {
	var out []Edit
	for _, i := range p.Images {
		at, ok := o.Images[placeOf(i.Want.Image)]
		if ok && at.Digest != i.Running.Digest {
			out = append(out, Edit{
				Container: i.Want.Image.Container, Field: EditImage,
				From: cmp.Or(i.Running.Tag, string(i.Running.Digest)), To: at.Tag,
			})
		}
	}
	return out
}

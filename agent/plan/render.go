// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// rendered is a rendered pod manifest.
type rendered struct {
	wanted  []byte
	left    []status.Left
	waiting bool // it is another pod than the one on disk
}

// tagAt is the tag that an image is to have; empty: the one that is written.
type tagAt struct{ path, tag string }

// renderInput is what a rendered pod manifest is to have.
type renderInput struct {
	overrides manifests.Overrides
	tags      []tagAt
	pins      []manifests.Pinned // put in the place of what was rendered
	text      string             // the whole of it; empty: it is rendered
}

// render makes the wanted pod manifest and compares it with the one on disk.
func render(source []byte, disk *node.PodFile, w renderInput) (rendered, error) {
	at := make(map[string]string, len(w.tags))
	for _, t := range w.tags {
		at[t.path] = t.tag
	}
	o := w.overrides
	o.Tag = func(_ string, img manifests.Image) (string, bool) {
		t := at[img.Path]
		return t, t != ""
	}
	out, err := manifests.Render(source, o)
	if err == nil && len(w.pins) > 0 {
		out.Data, err = manifests.Pin(out.Data, w.pins)
	}
	if err != nil {
		return rendered{}, fmt.Errorf("render: %w", err)
	}
	if w.text != "" {
		out.Data = []byte(w.text)
	}
	d := rendered{wanted: out.Data, left: left(out.Left)}
	if disk == nil || bytes.Equal(disk.Data, out.Data) {
		return d, nil
	}
	equal, err := manifests.Equal(disk.Data, out.Data)
	if err != nil {
		return d, fmt.Errorf("compare with the pod manifest: %w", err)
	}
	d.waiting = !equal
	return d, nil
}

// unreplacedPlaces are the places of an override that no newer release takes, and whether
// those are all.
func unreplacedPlaces(v *follow.PodView, p *PodPlan) (places []string, all bool) {
	for _, i := range p.Images {
		if at, ok := v.Overridden(i.Want.Image); ok && at.Digest == i.Target.Digest {
			places = append(places, node.PlaceOf(i.Want.Image))
		}
	}
	slices.Sort(places)
	return places, len(places) > 0 && len(places) == len(v.Override.Images)
}

// isStillWanted reports whether the text of an override, which has one, is what a pod is to be
// still: an image that it does not name by digest may follow another tag by now.
func isStillWanted(o record.Override, pod *PodPlan) bool {
	text, err := manifests.Parse([]byte(o.Data))
	if err != nil || o.Data == "" {
		return false
	}
	tags := map[string]string{}
	for _, img := range text.Images {
		tags[node.PlaceOf(img)] = manifests.SplitReference(img.Reference).Tag
	}
	return !slices.ContainsFunc(pod.Images, func(i ImagePlan) bool {
		place := node.PlaceOf(i.Want.Image)
		_, named := o.Images[place]
		tag, there := tags[place]
		return !named && there && i.Target.Tag != "" && i.Target.Tag != tag
	})
}

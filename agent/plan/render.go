// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// render renders the wanted pod manifest and compares it with the one on disk.
func (f *facts) render(v follow.PodView, p *PodPlan) {
	p.Waiting, p.Err = false, nil
	var disk *manifests.File
	if v.Disk != nil {
		if disk, p.Err = v.Disk.Parse(); p.Err != nil {
			return
		}
	}
	wanted, leftAlone, err := f.renderFile(&v, p, disk)
	if err != nil {
		p.Err = fmt.Errorf("render: %w", err)
		return
	}
	p.Wanted, p.Untouched = wanted.Data, untouched(leftAlone)
	p.Waiting = disk != nil && !p.matches(v.Disk) && !manifests.Equal(disk, wanted)
}

// renderFile renders the template with the target tags, and keeps the pins of an override.
func (f *facts) renderFile(
	v *follow.PodView, p *PodPlan, disk *manifests.File,
) (*manifests.File, []manifests.Image, error) {
	template, err := v.Source().Parse()
	if err != nil {
		return nil, nil, err
	}
	tags := map[string]string{}
	for _, i := range p.Images {
		isLater := i.Want.Image.Document > 0 // it has the same paths, and is not edited
		if !isLater && !i.namesLatest() {
			tags[i.Want.Image.Path] = i.Target.Tag
		}
	}
	out, err := template.Render(manifests.Overrides{
		Rewrites: f.policy.Rewrites, PullPolicy: v.PullPolicy(f.policy),
		Tag: func(_ string, img manifests.Image) (string, bool) {
			t := tags[img.Path]
			return t, t != ""
		},
	}, disk)
	if err != nil {
		return nil, nil, err
	}
	places, all := unreplacedPlaces(v, p)
	if all && v.Template != nil {
		if text, ok := stillWanted(v.Override, p); ok {
			return text, out.Untouched, nil
		}
	}
	if pins := v.Override.Pins(places); len(pins) > 0 {
		if out.File, err = out.Pin(pins, manifests.PullIfNotPresent); err != nil {
			return nil, nil, err
		}
	}
	bound, err := bind(p, out.File)
	return bound, out.Untouched, err
}

// namesLatest reports whether the target is the tag that kubelet pulls for a reference without a tag, and neither the
// template nor the pod manifest on disk has one: to write it would restart the pod for nothing.
func (i *ImagePlan) namesLatest() bool {
	written := manifests.SplitReference(i.Want.Image.Reference)
	return written.Tag == "" && written.Digest == "" && i.Want.OnDisk.Tag == "" &&
		i.Target.Tag == release.Reference{}.Tagged().Tag
}

// unreplacedPlaces returns the places of the override that no newer release replaces. all: the override has no other
// places.
func unreplacedPlaces(v *follow.PodView, p *PodPlan) (places []string, all bool) {
	for _, i := range p.Images {
		if at, ok := v.PinnedAt(i.Want.Image); ok && at.Digest == i.Target.Digest {
			places = append(places, node.PlaceOf(i.Want.Image))
		}
	}
	slices.Sort(places)
	return places, len(places) > 0 && len(places) == len(v.Override.Images)
}

// stillWanted returns the text of an override if it still applies: images that it does not pin may follow another tag
// by now.
func stillWanted(o record.Override, pod *PodPlan) (*manifests.File, bool) {
	text, err := manifests.Parse([]byte(o.Data))
	if err != nil {
		return nil, false
	}
	refs := map[string]manifests.Reference{}
	for _, img := range text.Images {
		refs[node.PlaceOf(img)] = manifests.SplitReference(img.Reference)
	}
	return text, !slices.ContainsFunc(pod.Images, func(i ImagePlan) bool {
		place := node.PlaceOf(i.Want.Image)
		_, named := o.Images[place]
		ref, there := refs[place]
		isOther := i.Target.Tag != ref.Tag || ref.Digest != "" && ref.Digest != i.Target.Digest.String()
		return !named && there && i.Target.Tag != "" && isOther
	})
}

// edits returns the changes of images and pull policies in the pod's offer.
func (f *facts) edits(v follow.PodView, p PodPlan) []status.Edit {
	var out []status.Edit
	for _, i := range p.Images {
		if i.Change == "" {
			continue
		}
		e := status.Edit{Container: i.Want.Image.Container, Field: status.EditImage, From: i.From, To: i.Target.Name()}
		if e.From == e.To { // the names are equal: show the tags
			e.From, e.To = i.Want.OnDisk.Tag, i.Target.Tag
		}
		if e.From == e.To {
			e.From, e.To = withDigest(e.From, i.Running.Digest), withDigest(e.To, i.Target.Digest)
		}
		if e.From != e.To {
			out = append(out, e)
		}
	}
	if v.Disk == nil || !p.Waiting {
		return out
	}
	return append(out, follow.PullPolicyEdits(*v.Disk, p.Wanted)...)
}

func withDigest(tag string, d digest.Digest) string {
	if d == "" {
		return tag
	}
	return fmt.Sprintf("%s (%.12s)", tag, d.Encoded())
}

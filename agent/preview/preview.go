// SPDX-License-Identifier: Apache-2.0

// Package preview returns the agent's offers for pod manifests that no node runs. It asks the source as a poll does,
// decides as the agent does on a node whose configuration lists all of them under manage, and changes nothing.
package preview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Preview is the set of offers.
type Preview struct {
	Images []Image
	// Wanted are the changed pod manifests as an apply would write them, by name.
	Wanted map[string][]byte
}

// Image is the offer for an image reference.
type Image struct {
	File       string `json:"file"`
	Line       int    `json:"line"`       // 0 if Error is about the whole file
	Container  string `json:"container"`  // empty for a volume
	Reference  string `json:"reference"`  // as written
	Repository string `json:"repository"` // that the source is asked about, after rewrites; empty if there is none
	Follow     string `json:"follow"`     // the tag
	Digest     string `json:"digest"`     // of the tag now; empty if unknown
	Host       string `json:"host"`       // that answered
	Offered    string `json:"offered"`    // another tag; empty if there is none
	Change     string `json:"change"`     // as in the status; empty if there is none
	// NotAllowed are newer tags that the configuration refuses, one for each setting that would allow it.
	NotAllowed []policy.Refusal `json:"notAllowed"`
	// RebuildsOnly is why only rebuilds of the tag are found; nil if newer tags are found, too.
	RebuildsOnly *status.RebuildsOnly `json:"rebuildsOnly,omitempty"`
	// Untouched is why the reference stays unchanged, as in the status; empty if it does not.
	Untouched string `json:"untouched"`
	// Held is why the agent would not change the file now; empty if it would.
	Held  string   `json:"held"`
	Notes []string `json:"notes"`
	Error string   `json:"error,omitempty"` // why there is no answer
}

// Place returns FILE:LINE, or FILE.
func (i Image) Place() string {
	if i.Line == 0 {
		return i.File
	}
	return fmt.Sprintf("%s:%d", i.File, i.Line)
}

// Ask asks the source about the images of pod manifests, whose names are paths. It uses only the source, policy, log
// and clock of asker. ownerOf returns the distribution that builds an image for pod manifests that it writes.
func Ask(
	ctx context.Context, asker *source.Asker, files []node.PodFile, ownerOf func(reference string) string,
) Preview {
	asker.Policy = managing(asker.Policy, files, ownerOf)
	asker.Record, asker.Progress = &record.Record{}, &status.Reporter{}
	asker.Jitter = func() float64 { return 0 }
	inv := node.Inventory{PodManifests: files}
	views := follow.ReadPods(inv, *asker.Record, asker.Policy)
	round := asker.NewRound(source.PollAll, nil, nil)
	offers := asker.Ask(ctx, round, follow.Questions(views, asker.Policy), false)
	decided := plan.Decide(inv, offers, *asker.Record, asker.Policy, asker.Now())
	out := Preview{Images: []Image{}, Wanted: map[string][]byte{}}
	for n, pod := range decided.Pods { // one per view
		if pod.Err != nil {
			out.Images = append(out.Images, Image{
				File: pod.File, NotAllowed: []policy.Refusal{}, Notes: []string{}, Error: pod.Err.Error(),
			})
		}
		for _, i := range pod.Images {
			image := imageOf(pod, i, asker.Policy.RuleForQuestion(i.Want.Ask))
			if why := views[n].ReadOnly; why != nil {
				if image.Held = why.Error(); views[n].Owner != "" {
					image.Held += "; to get newer images, update " + views[n].Owner
				}
			}
			out.Images = append(out.Images, image)
		}
		if pod.Change != "" && pod.Wanted != nil {
			out.Wanted[pod.File] = pod.Wanted
		}
	}
	slices.SortStableFunc(out.Images, func(a, b Image) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return out
}

// managing returns a policy as if the configuration listed the files under manage, and no images. A file that a
// distribution writes belongs to it in any directory, also if this machine has another distribution.
func managing(p policy.Policy, files []node.PodFile, ownerOf func(reference string) string) policy.Policy {
	p.Manage, p.Owned, p.Images = map[string]bool{}, maps.Clone(p.Owned), nil
	for _, file := range files {
		p.Manage[file.Name] = true
		if owner := cmp.Or(p.Owned[filepath.Base(file.Name)], ownerOfPod(file.Data, ownerOf)); owner != "" {
			p.Owned[file.Name] = owner
		}
	}
	return p
}

// ownerOfPod returns the distribution that writes a pod manifest, by its images: its labels may be kubeadm's.
func ownerOfPod(data []byte, ownerOf func(reference string) string) string {
	file, err := manifests.Parse(data)
	if err != nil {
		return ""
	}
	for _, image := range file.Images {
		if owner := ownerOf(image.Reference); owner != "" {
			return owner
		}
	}
	return ""
}

// imageOf returns the decision about an image of a pod.
func imageOf(pod plan.PodPlan, i plan.ImagePlan, rule policy.Rule) Image {
	w, o := i.Want, i.Offer
	out := Image{
		File: pod.File, Line: w.Image.Line, Container: w.Image.Container, Reference: w.Image.Reference,
		Repository: w.Ask.Repository, Follow: cmp.Or(o.Follow.Tag, w.Ask.Tag), Host: o.Host,
		NotAllowed: append([]policy.Refusal{}, i.NotAllowed...), RebuildsOnly: i.RebuildsOnly,
		Untouched: w.Untouched, Notes: append([]string{}, o.Notes...),
	}
	if w.Ask.Repository == "" {
		return out
	}
	for _, h := range pod.Holds {
		switch {
		case h.Name == status.HoldDuplicate:
			out.Held = h.Reason + "; the agent changes neither of them"
		case h.Name == status.HoldUnresolved && !o.IsUnresolved():
			out.Held = "the agent does not change the pod while " + h.Image + " is unknown"
		}
	}
	if o.Err != nil {
		out.Error = o.Err.Error()
	}
	if o.IsUnresolved() {
		return out
	}
	out.Digest = o.Follow.Digest.String()
	is := manifests.SplitReference(w.Image.Reference)
	if i.Target.Repository == w.OnDisk.Repository && i.Target.Tag == cmp.Or(is.Tag, "latest") {
		return out
	}
	out.Offered = i.Target.Tag
	isSame := i.Target.Digest == o.Follow.Digest && w.Ask.Tag == w.OnDisk.Tag
	out.Change = policy.ChangeOf(w.OnDisk, i.Target, isSame, isSame, rule.Scheme)
	return out
}

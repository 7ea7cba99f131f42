// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Expected is a followed container that kubelet must run.
type Expected struct {
	File, namespace, pod, Container string
	init                            bool
	once                            bool // kubelet does not restart it after success
	missing                         time.Time
}

// StartTimeout is how long a container may take to start, including the pull of its image.
const StartTimeout = 5 * time.Minute

// Expects returns the container of an image; false if kubelet does not have to run it.
func (v *PodView) Expects(w Want, inv node.Inventory) (Expected, bool) {
	is := node.IsContainer(w.Image) && w.Ask.Repository != "" && v.Disk != nil && w.OnDisk.Repository != ""
	return Expected{
		File: v.File, namespace: v.Was.Namespace, pod: v.Was.Name, Container: w.Image.Container,
		init: w.Image.Kind == manifests.KindInit, once: v.Was.Once,
		missing: inv.Missing[record.GoodKey(v.File, w.Image.Container)],
	}, is
}

// Find returns the container in CRI; nil if CRI does not show it.
func (e Expected) Find(pods node.ByPod) *node.Container {
	return node.FindContainer(pods.Containers(e.namespace, e.pod), e.Container)
}

// IsExplained reports whether kubelet says why it does not start the container.
func (e Expected) IsExplained(pods node.ByPod) bool {
	return slices.ContainsFunc(pods.Unstarted(e.namespace, e.pod), func(w node.Waiting) bool {
		return w.Container == e.Container
	})
}

// Down returns why the container does not run; nil if it runs or has finished.
func (e Expected) Down(pods node.ByPod, now time.Time) *status.Down {
	c := e.Find(pods)
	var out status.Down
	switch {
	case c == nil && e.init, c != nil && c.Running:
		return nil // kubelet removes finished init containers
	case c == nil, c.StartedAt.IsZero() && c.FinishedAt.IsZero():
		out = status.Down{Since: e.missing, Starting: true, Absent: true}
		if out.Since.IsZero() || out.Since.After(now) {
			out.Since = now
		}
	case c.ExitCode == 0 && (e.init || e.once):
		return nil
	default:
		out = status.Down{Since: c.FinishedAt, ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message}
	}
	for _, w := range pods.Unstarted(e.namespace, e.pod) {
		if w.Container == e.Container {
			out.Reason, out.Message = w.Reason, w.Message
		}
	}
	// kubelet's reasons before its first attempt.
	early := out.Reason == "" || out.Reason == "ContainerCreating" || out.Reason == "PodInitializing"
	out.Starting = out.Starting && early && now.Sub(out.Since) < StartTimeout
	return &out
}

// RestoreWritten restores what a lost record knew of managed pod manifests without a template: which digests in them
// the agent wrote. Those stand beside a tag, and the agent has pinned their images; an override also has IfNotPresent.
// Templates show it without a record, see foundOverride.
func RestoreWritten(inv node.Inventory, rec *record.Record, p policy.Policy, now time.Time) {
	templates := node.ByName(inv.Templates)
	_, pinned := inv.Digests()
	for _, f := range inv.PodManifests {
		pod, err := f.Parse()
		if err != nil || f.Err != nil || !p.Manage[f.Name] || templates[f.Name] != nil {
			continue
		}
		o := record.Override{
			At: now.UTC(), Reason: "the record that said why was lost", Data: string(f.Data),
			Images: map[string]record.PinnedImage{},
		}
		bound := map[string]digest.Digest{}
		for _, img := range pod.Images {
			at, named := pinnedIn(img, p)
			if !named || at.Tag == "" || !pinned[at.Pin] {
				continue
			}
			if _, listed := inv.Catalog.Find(at.Repository, at.Digest); listed {
				bound[node.PlaceOf(img)] = at.Digest
			} else if node.PullPolicyOf(img) == manifests.PullIfNotPresent {
				o.Images[node.PlaceOf(img)] = at
			}
		}
		if len(o.Images) > 0 {
			rec.Overrides.Set(f.Name, o)
		}
		if len(bound) > 0 {
			rec.Bound.Set(f.Name, bound)
		}
	}
}

// foundOverride returns the override for a pod manifest that has digests in place of its template's tags. The record
// has none, because it was lost or because a person wrote the digests. The images follow the template's tags.
func (v *PodView) foundOverride(p policy.Policy) record.Override {
	if v.Template == nil || v.Disk == nil || len(v.Override.Images) > 0 {
		return v.Override
	}
	template, err := v.Template.Parse()
	if err != nil {
		return v.Override
	}
	disk, err := v.Disk.Parse()
	if err != nil {
		return v.Override
	}
	follows := map[string]bool{}
	for _, img := range template.Images {
		follows[node.PlaceOf(img)] = node.IsContainer(img) && node.Pulled(img)
	}
	o := record.Override{Reason: "the record does not say why", Images: map[string]record.PinnedImage{}}
	for _, img := range disk.Images {
		_, isBound := v.Bound[node.PlaceOf(img)]
		if at, named := pinnedIn(img, p); named && !isBound && follows[node.PlaceOf(img)] {
			o.Images[node.PlaceOf(img)] = at
		}
	}
	if len(o.Images) == 0 {
		return v.Override
	}
	return o
}

// pinnedIn returns the image that a container names by digest; false if it does not.
func pinnedIn(img manifests.Image, p policy.Policy) (at record.PinnedImage, named bool) {
	ref := manifests.SplitReference(img.Reference)
	repository, err := release.NormalizeRepository(ref.Name)
	return record.PinnedImage{
		Pin: release.Pin{Repository: repository, Digest: digest.Digest(ref.Digest)}, Tag: ref.Tag,
		Follow: release.Floating(ref.Tag, p.RuleFor(repository).Scheme),
	}, err == nil && ref.Digest != "" && img.Document == 0 && node.IsContainer(img)
}

// LocalRegistryFacts returns the input of the local registry's table, except for steps under way.
func LocalRegistryFacts(inv node.Inventory, rec record.Record, p policy.Policy) localregistry.Facts {
	f := localregistry.Facts{
		Pulled: map[string]digest.Digest{}, Private: rec.Private, ServePrivate: p.ServePrivate,
		Known: func(p release.Pin) release.Release { return rec.Releases[release.Key(p.Repository, p.Digest)] },
		Denied: func(d digest.Digest) (string, bool) {
			no, is := rec.Denies(release.Release{Digest: d})
			return no.Reason, is
		},
	}
	for _, h := range inv.Held {
		switch {
		case h.Pin && h.Complete:
			pin := release.Pin{Repository: h.Repository, Digest: h.Digest}
			f.Images = append(f.Images, localregistry.Image{Pin: pin, MediaType: h.MediaType, Size: h.Size})
		case !h.Pin && !h.Staged:
			f.Pulled[h.Name] = h.Digest
		}
	}
	for _, v := range ReadPods(inv, rec, p) {
		if v.Err != nil || v.Disk == nil {
			continue
		}
		for _, w := range v.Wants {
			if node.IsContainer(w.Image) && w.Ask.Repository != "" && w.OnDisk.Repository != "" {
				f.Followed = append(f.Followed, v.onLocalRegistry(w, rec))
			}
		}
	}
	return f
}

// onLocalRegistry returns the candidate digests for a tag that a container follows.
func (v *PodView) onLocalRegistry(w Want, rec record.Record) localregistry.Followed {
	place, on := node.PlaceOf(w.Image), w.OnDisk.Tagged()
	out := localregistry.Followed{Reference: on}
	at := v.Override.Images[place]
	if v.Override.Pending && at.Repository == on.Repository && at.Follow == on.Tag {
		out.Pending = at.Digest
	}
	if at := v.Bound[place]; at.Repository == on.Repository {
		out.Written = at.Digest
	}
	if g := rec.Good[record.GoodKey(v.File, w.Image.Container)]; g.Repository == on.Repository {
		out.Good = g.Running
	}
	return out
}

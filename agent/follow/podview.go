// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Want is an image reference of a pod manifest and its question.
type Want struct {
	Image manifests.Image
	Ask   release.Question
	// OnDisk is the reference at the same place of kubelet's pod manifest; zero if there is none.
	OnDisk release.Reference
	// PullPolicy is kubelet's, as written or its default.
	PullPolicy string
	Untouched  string // why the reference is not changed; if it is not pulled either, Ask is zero
}

// PodView is a pod manifest and its template, by file name.
type PodView struct {
	File     string
	Template *node.PodFile
	Disk     *node.PodFile
	Waiting  *node.PodFile
	Managed  bool // the agent may change the pod manifest
	// ReadOnly is why the agent must not write Disk, though kubelet reads it; nil if it may.
	ReadOnly error
	// Owner is the Kubernetes distribution that rewrites the file at each of its starts; empty if there is none.
	Owner string
	// Duplicate are the files that define the same pod.
	Duplicate node.Duplicate
	Pod       manifests.Pod
	Wants     []Want
	Err       error

	Override record.Override
	Bound    map[string]record.PinnedImage // places of Disk with digests from a catalog
	Was      manifests.Pod                 // of Disk
	Named    map[string]bool               // places of Disk with digests from Override
	followed *node.PodFile                 // Disk without those digests; nil if there is a template
}

// ReadPods parses the files of an inventory and finds their questions.
func ReadPods(inv node.Inventory, rec record.Record, p policy.Policy) []PodView {
	names := FileNames(inv)
	templates, disk, waiting := node.ByName(inv.Templates), node.ByName(inv.PodManifests), node.ByName(inv.Waiting)
	views := make([]PodView, 0, len(names))
	for _, file := range names {
		v := PodView{
			File: file, Template: templates[file], Disk: disk[file], Waiting: waiting[file],
			Override: rec.Overrides[file],
		}
		if v.isPassedOver(rec, p) {
			continue
		}
		v.followReadOnly()
		v.followOwned(p)
		if v.Override.Pending && (v.Disk == nil || !v.Override.IsFor(string(v.Disk.Data))) {
			v.Override = record.Override{} // edited by hand
		}
		v.readBound(inv.Catalog, rec, p)
		v.Wants, v.Err = v.read(p)
		views = append(views, v)
	}
	findDuplicates(inv.PodManifests, views)
	return views
}

// FileNames returns the names of templates and pod manifests, sorted, without duplicates.
func FileNames(inv node.Inventory) []string {
	var names []string
	for _, files := range [][]node.PodFile{inv.Templates, inv.PodManifests} {
		for _, f := range files {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Source returns the file that the images follow: the template, or else kubelet's pod manifest.
func (v *PodView) Source() *node.PodFile {
	switch {
	case v.Template != nil:
		return v.Template
	case v.followed != nil:
		return v.followed
	}
	return v.Disk
}

// IsControlPlane reports whether a cluster needs the pods of a role for its API. The agent changes such a pod only if
// the configuration lists it.
func IsControlPlane(role string) bool {
	return role == manifests.RoleEtcd || role == manifests.RoleAPIServer
}

// Role returns the pod's role in a control plane: of the pod manifest on disk, or else of the template.
func (v *PodView) Role() string { return cmp.Or(v.Was.Role, v.Pod.Role) }

func (v *PodView) read(p policy.Policy) ([]Want, error) {
	for _, f := range []*node.PodFile{v.Template, v.Disk} {
		if f != nil && f.Err != nil {
			return nil, f.Err
		}
	}
	v.Override = v.foundOverride(p)
	onDisk, err := v.readDisk()
	if err != nil {
		return nil, err
	}
	pod, err := v.Source().Parse()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.role(), err)
	}
	v.Pod = pod.Pod
	v.Managed = v.ReadOnly == nil && (p.Manage[v.File] || v.Template != nil && !IsControlPlane(v.Role()))
	var wants []Want
	for _, img := range pod.Images {
		w := Want{Image: img}
		if d, ok := onDisk[node.PlaceOf(img)]; ok {
			w.OnDisk, _ = release.ParseReference(d)
		}
		w.PullPolicy = node.PullPolicyOf(img)
		if write := v.PullPolicy(p); write != "" && img.Editable && w.PullPolicy != node.PullNever {
			w.PullPolicy = write
		}
		if err := w.question(p, v.Managed); err != nil {
			return nil, fmt.Errorf("line %d: %w", img.Line, err)
		}
		w.Ask.Kubeadm = w.Ask.Repository != "" && v.isKubeadm(img)
		wants = append(wants, w)
	}
	return wants, nil
}

// role names the source for an error message.
func (v *PodView) role() string {
	if v.Template != nil {
		return "template"
	}
	return "pod manifest"
}

// readDisk returns the references of kubelet's pod manifest by place. It must parse even where a
// template exists, to be compared with it.
func (v *PodView) readDisk() (map[string]string, error) {
	if v.Disk == nil {
		return nil, nil
	}
	pod, err := v.Disk.Parse()
	if err != nil {
		return nil, fmt.Errorf("pod manifest: %w", err)
	}
	v.Was = pod.Pod
	out := make(map[string]string, len(pod.Images))
	v.Named = map[string]bool{}
	for _, img := range pod.Images {
		at, named := v.Override.Names(img)
		switch {
		case named:
			v.Named[node.PlaceOf(img)] = true
			out[node.PlaceOf(img)] = release.Reference{Repository: at.Repository, Tag: at.Follow}.String()
		case v.Bound[node.PlaceOf(img)].Digest != "":
			at = v.Bound[node.PlaceOf(img)]
			out[node.PlaceOf(img)] = release.Reference{Repository: at.Repository, Tag: at.Follow}.String()
		case node.Pulled(img):
			out[node.PlaceOf(img)] = img.Reference
		}
	}
	if v.Template == nil && len(v.Named)+len(v.Bound) > 0 {
		undone, err := v.Unbound()
		if err != nil {
			return nil, fmt.Errorf("pod manifest: %w", err)
		}
		v.followed = &undone
	}
	return out, nil
}

// Unmanaged returns why the agent does not change a pod manifest; empty if it does.
func (v *PodView) Unmanaged() string {
	switch {
	case v.Owner != "":
		return v.ReadOnly.Error()
	case v.ReadOnly != nil:
		return v.ReadOnly.Error() + ": the agent does not write such a file"
	case v.Template != nil:
		return v.File + " belongs to the control plane and is not listed under manage"
	}
	return v.File + " has no template and is not listed under manage"
}

// PullPolicy returns the pull policy that rendering writes; empty if none.
func (v *PodView) PullPolicy(p policy.Policy) string {
	if v.Template != nil {
		return p.PullPolicy
	}
	return p.ManagedPullPolicy
}

// PinnedAt returns the digest of an image's place in the override. An edit of a pod manifest without a template ends
// the override.
func (v *PodView) PinnedAt(i manifests.Image) (record.PinnedImage, bool) {
	at, ok := v.Override.Images[node.PlaceOf(i)]
	if !ok || v.Template == nil && !v.Override.Pending && !v.Named[node.PlaceOf(i)] {
		return record.PinnedImage{}, false
	}
	return at, true
}

// isKubeadm reports whether an image is a control-plane component set up by kubeadm.
func (v *PodView) isKubeadm(i manifests.Image) bool {
	name := v.Pod.Component
	return v.Owner == "" && v.Template == nil && name != "" && i.Kind == manifests.KindContainer && i.Container == name
}

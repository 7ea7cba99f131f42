// SPDX-License-Identifier: Apache-2.0

// Package follow finds the tags that the pod manifests of a node follow: for each image of a pod manifest or its
// template, the question to a source. It is pure.
package follow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
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
		place := node.PlaceOf(img)
		at, named := v.Override.Names(img)
		if named {
			v.Named[place] = true
		} else {
			at = v.Bound[place]
		}
		switch {
		case named, at.Digest != "":
			out[place] = release.Reference{Repository: at.Repository, Tag: at.Follow}.String()
		case node.Pulled(img):
			out[place] = img.Reference
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

// PinnedAt returns the digest that the override has for an image's place. An edit of a pod manifest without a template
// ends the override.
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

// readBound sets the images that the pod manifest on disk binds to the digests of a catalog. In a pod manifest without
// a template, a digest that the agent did not write was written by a person.
func (v *PodView) readBound(l catalog.Listing, rec record.Record, p policy.Policy) {
	if l.Catalog == "" || v.Disk == nil || v.Disk.Err != nil {
		return
	}
	disk, err := v.Disk.Parse()
	if err != nil {
		return // readDisk reports it
	}
	v.Bound = map[string]record.PinnedImage{}
	for _, img := range disk.Images {
		at, named := pinnedIn(img, p)
		_, isOverride := v.Override.Names(img)
		isOurs := v.Template != nil || p.Manage[v.File] && rec.Bound[v.File][node.PlaceOf(img)] == at.Digest
		if named && at.Tag != "" && !isOverride && isOurs {
			at.Follow = at.Tag
			v.Bound[node.PlaceOf(img)] = at
		}
	}
}

// Unbound returns kubelet's pod manifest with plain tags in place of digests from an override or a catalog.
func (v *PodView) Unbound() (node.PodFile, error) {
	file, err := v.Override.Unpinned(*v.Disk)
	if err != nil {
		return file, err
	}
	return record.Override{Images: v.Bound}.WithTags(file)
}

// PullPolicyEdits returns the pull policies that differ between two pod manifests.
func PullPolicyEdits(disk node.PodFile, wanted []byte) []status.Edit {
	was, errWas := disk.Parse()
	is, errIs := manifests.Parse(wanted)
	if errWas != nil || errIs != nil {
		return nil // rendering reports it
	}
	before := map[string]manifests.Image{}
	for _, img := range was.Images {
		before[node.PlaceOf(img)] = img
	}
	var out []status.Edit
	for _, img := range is.Images {
		old, there := before[node.PlaceOf(img)]
		if there && node.Pulled(img) && old.PullPolicy != img.PullPolicy {
			out = append(
				out, status.Edit{Container: img.Container, Field: status.EditPullPolicy, From: old.PullPolicy, To: img.PullPolicy},
			)
		}
	}
	return out
}

// PassedOver returns why kubelet, and so the agent, ignores a file of its directory: it is not a regular file, or has
// no Pod (pkg/kubelet/config/file.go, extractFromDir). nil if kubelet runs it, or if it looks like a broken pod
// manifest.
func PassedOver(f node.PodFile) error {
	if f.Err != nil && f.Followed == nil {
		if f.PassedOver {
			return f.Err
		}
		return nil
	}
	_, err := f.Parse()
	if _, is := errors.AsType[*manifests.NotPodError](err); is {
		return err
	}
	isNamedSo := slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(f.Name)))
	if err != nil && !isNamedSo && f.Defines() == "" {
		return err
	}
	return nil
}

// isPassedOver reports whether kubelet ignores the file and no setting expects a pod of it: no template, no
// configuration, and no record of one that it defined.
func (v *PodView) isPassedOver(rec record.Record, p policy.Policy) bool {
	if v.Disk == nil || v.Template != nil || p.Manage[v.File] || PassedOver(*v.Disk) == nil {
		return false
	}
	_, wrote := rec.Wrote[v.File]
	return !wrote && !slices.ContainsFunc(slices.Collect(maps.Keys(rec.Good)), func(key string) bool {
		return strings.HasPrefix(key, record.GoodKey(v.File, ""))
	})
}

// followReadOnly follows the content that kubelet reads from a pod manifest that the agent must not write. The file
// prevents writing its template.
func (v *PodView) followReadOnly() {
	if v.Disk == nil || v.Disk.Err == nil || v.Disk.Followed == nil || v.Template != nil {
		return
	}
	disk := *v.Disk
	v.ReadOnly = disk.Err
	disk.Data, disk.Followed, disk.Err = disk.Followed, nil, nil
	v.Disk = &disk
}

// followOwned makes a pod manifest written by the distribution read-only: an edit would last only until the
// distribution's next start.
func (v *PodView) followOwned(p policy.Policy) {
	if v.Owner = p.Owned[v.File]; v.Owner != "" {
		v.ReadOnly = fmt.Errorf("%s writes %s itself at each start", v.Owner, v.File)
		v.Override = record.Override{}
	}
}

// findDuplicates finds the pods that more than one file defines, among kubelet's files and templates that the agent
// would write.
func findDuplicates(files []node.PodFile, views []PodView) {
	defining := map[string][]node.PodFile{} // by pod
	var unread []node.PodFile
	add := func(f node.PodFile) {
		if f.IsUnread() {
			unread = append(unread, f)
		} else {
			defining[f.Defines()] = append(defining[f.Defines()], f)
		}
	}
	for _, f := range files {
		add(f)
	}
	for _, v := range views {
		if v.Template != nil && v.Managed && v.Err == nil {
			add(*v.Template)
		}
	}
	for n := range views {
		v := &views[n]
		var pods []string
		if v.Disk != nil {
			pods = append(pods, v.Disk.Defines())
		}
		if v.Template != nil && v.Managed && v.Err == nil {
			pods = append(pods, v.Pod.ID())
		}
		for _, pod := range pods {
			if pod != "" && !v.Duplicate.Is() {
				v.Duplicate = node.FindDuplicate(slices.Concat(defining[pod], unread), v.File, pod)
			}
		}
	}
}

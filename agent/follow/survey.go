// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// Want is one image reference of a pod manifest and what it asks for.
type Want struct {
	Image manifests.Image
	Ask   release.Question
	// OnDisk is what the pod manifest that kubelet has says in the same place;
	// zero where there is none. It is what runs, or is about to.
	OnDisk release.Reference
	// PullPolicy is what kubelet is to go by, whether it is written or not.
	PullPolicy string
	Left       string // why the reference is left alone; Ask is zero then
}

// PodView is one pod manifest by file name: what should be, and what is.
type PodView struct {
	File     string
	Template *node.PodFile
	Disk     *node.PodFile
	Waiting  *node.PodFile
	Managed  bool // ours to change
	Pod      manifests.Pod
	Wants    []Want
	Err      error

	Override record.Override
	Was      manifests.Pod   // what disk says
	Named    map[string]bool // places of disk that name what override says
	followed *node.PodFile   // disk without them, where it has no template; else nil
}

// ReadPods reads the inventory's files and finds what each asks for. Pure.
func ReadPods(inv node.Inventory, overrides map[string]record.Override, p policy.Policy) []PodView {
	var views []PodView
	for _, file := range FileNames(inv) {
		v := PodView{
			File: file, Template: node.Find(inv.Templates, file),
			Disk: node.Find(inv.PodManifests, file), Waiting: node.Find(inv.Waiting, file),
			Override: overrides[file],
		}
		if v.Override.Pending && (v.Disk == nil || !v.Override.Fits(string(v.Disk.Data))) {
			v.Override = record.Override{} // edited by hand
		}
		v.Wants, v.Err = v.read(p)
		views = append(views, v)
	}
	return views
}

// FileNames are the names of templates and pod manifests, sorted, each once.
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

// Source is the file that says what is wanted: the template, else kubelet's own.
func (v *PodView) Source() *node.PodFile {
	switch {
	case v.Template != nil:
		return v.Template
	case v.followed != nil:
		return v.followed
	}
	return v.Disk
}

// IsControlPlane tells the pods without which a cluster has no API. They are
// changed only where the configuration lists them.
func IsControlPlane(pod string) bool { return pod == PodEtcd || pod == PodAPIServer }

// The control plane as kubeadm names it.
const (
	PodEtcd              = "etcd"
	PodAPIServer         = "kube-apiserver"
	PodControllerManager = "kube-controller-manager"
	PodScheduler         = "kube-scheduler"
)

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
	v.Pod = pod
	v.Managed = p.Manage[v.File] || v.Template != nil && !IsControlPlane(pod.Name)
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

// readDisk gives the references of kubelet's file by place. It must be readable
// even where a template exists: what cannot be read cannot be compared.
func (v *PodView) readDisk() (map[string]string, error) {
	if v.Disk == nil {
		return nil, nil
	}
	pod, err := v.Disk.Parse()
	if err != nil {
		return nil, fmt.Errorf("pod manifest: %w", err)
	}
	v.Was = pod
	out := make(map[string]string, len(pod.Images))
	v.Named = map[string]bool{}
	for _, img := range pod.Images {
		at, named := v.Override.Names(img)
		switch {
		case named:
			v.Named[node.PlaceOf(img)] = true
			out[node.PlaceOf(img)] = release.Reference{Repository: at.Repository, Tag: at.Follow}.String()
		case node.Pulled(img):
			out[node.PlaceOf(img)] = img.Reference
		}
	}
	if v.Template == nil && len(v.Named) > 0 {
		undone, err := v.Override.Unpinned(*v.Disk)
		if err != nil {
			return nil, fmt.Errorf("pod manifest: %w", err)
		}
		v.followed = &undone
	}
	return out, nil
}

// question finds the question that an image reference puts to the source.
func (w *Want) question(p policy.Policy, managed bool) error {
	if !node.Pulled(w.Image) {
		w.Left = w.Image.Reason
		return nil
	}
	ref := manifests.SplitReference(w.Image.Reference)
	editable := managed && w.Image.Editable
	name := ref.Name
	if editable {
		name = manifests.Rewritten(ref.Name, p.Rewrites)
	}
	repository, err := release.NormalizeRepository(name)
	if err != nil {
		return err
	}
	tag := ref.Tag
	switch {
	case release.IsPlaceholder(tag):
		tag = p.Value(ref.Name, name, repository)
	case tag == "":
		tag = "latest" // what kubelet makes of it
	}
	// A placeholder that was copied as it is never was a tag.
	rule := p.RuleFor(repository)
	switch {
	case editable && rule.Follow != "":
		tag = rule.Follow
	case w.OnDisk.Repository == repository && !release.IsPlaceholder(w.OnDisk.Tag):
		tag = Higher(tag, w.OnDisk.Tag, rule.Dialect)
	}
	if !editable {
		w.Left = w.Image.Reason
	}
	w.Ask = release.Question{Repository: repository, Tag: tag, Convert: editable}
	return nil
}

// Higher is the tag that says more: the one on disk once the agent has moved
// on, the template's once an OS update brought a newer one. Tags that cannot be
// compared leave the template's word standing.
func Higher(template, disk string, d tags.Dialect) string {
	if template == "" {
		return disk
	}
	t, errT := d.Parse(template)
	k, errK := d.Parse(disk)
	if errT != nil || errK != nil || t.HasV() != k.HasV() || tags.Compare(t, k) >= 0 {
		return template
	}
	return disk
}

// Questions are the questions of all pods and of the configuration, sorted,
// each once.
func Questions(views []PodView, p policy.Policy) []release.Question {
	var qs []release.Question
	for _, v := range views {
		for _, w := range v.Wants {
			if w.Ask.Repository != "" {
				qs = append(qs, w.Ask)
			}
		}
	}
	for _, r := range p.Images {
		qs = append(qs, release.Question{Repository: r.Repository, Tag: r.Tag})
	}
	slices.SortFunc(qs, func(a, b release.Question) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(qs)
}

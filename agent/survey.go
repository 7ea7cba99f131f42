// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// Question is what the source is asked about one followed image.
type Question struct {
	Repository string
	// Tag is where to start from: the tag in the template or in the pod manifest,
	// whichever is higher. Empty: a placeholder without a value, so the newest.
	Tag string
	// Convert: the pod manifest is ours to render, so a short tag is to become
	// its intermediate tag. Otherwise the tag is followed as it stands.
	Convert bool
	// Kubeadm: the image is of a control plane that kubeadm has set up.
	Kubeadm bool
}

// String is the question for people, and as a key of the record.
func (q Question) String() string {
	s := q.Repository
	if q.Tag != "" {
		s += ":" + q.Tag
	}
	if q.Kubeadm {
		s += ofKubeadm
	}
	if !q.Convert {
		s += asWritten
	}
	return s
}

// ofKubeadm marks the questions of a control plane of kubeadm.
const ofKubeadm = " (kubeadm)"

// asWritten marks the questions of pod manifests that are not ours to render.
const asWritten = " (as written)"

// Want is one image reference of a pod manifest and what it asks for.
type Want struct {
	Image manifests.Image
	Ask   Question
	// OnDisk is what the pod manifest that kubelet has says in the same place;
	// zero where there is none. It is what runs, or is about to.
	OnDisk Reference
	// PullPolicy is what kubelet is to go by, whether it is written or not.
	PullPolicy string
	Left       string // why the reference is left alone; Ask is zero then
}

// podView is one pod manifest by file name: what should be, and what is.
type podView struct {
	file     string
	template *PodFile
	disk     *PodFile
	waiting  *PodFile
	managed  bool // ours to change
	pod      manifests.Pod
	wants    []Want
	err      error

	override Override
	was      manifests.Pod   // what disk says
	named    map[string]bool // places of disk that name what override says
	followed *PodFile        // disk without them, where it has no template; else nil
}

// survey reads the inventory's files and finds what each asks for. Pure.
func survey(inv Inventory, overrides map[string]Override, p Policy) []podView {
	var views []podView
	for _, file := range fileNames(inv) {
		v := podView{
			file: file, template: find(inv.Templates, file),
			disk: find(inv.PodManifests, file), waiting: find(inv.Waiting, file),
			override: overrides[file],
		}
		if v.override.Pending && (v.disk == nil || !v.override.fits(string(v.disk.Data))) {
			v.override = Override{} // edited by hand
		}
		v.wants, v.err = v.read(p)
		views = append(views, v)
	}
	return views
}

// fileNames are the names of templates and pod manifests, sorted, each once.
func fileNames(inv Inventory) []string {
	var names []string
	for _, files := range [][]PodFile{inv.Templates, inv.PodManifests} {
		for _, f := range files {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// source is the file that says what is wanted: the template, else kubelet's own.
func (v *podView) source() *PodFile {
	switch {
	case v.template != nil:
		return v.template
	case v.followed != nil:
		return v.followed
	}
	return v.disk
}

// isControlPlane tells the pods without which a cluster has no API. They are
// changed only where the configuration lists them.
func isControlPlane(pod string) bool { return pod == podEtcd || pod == podAPIServer }

// The control plane as kubeadm names it.
const (
	podEtcd              = "etcd"
	podAPIServer         = "kube-apiserver"
	podControllerManager = "kube-controller-manager"
	podScheduler         = "kube-scheduler"
)

func (v *podView) read(p Policy) ([]Want, error) {
	for _, f := range []*PodFile{v.template, v.disk} {
		if f != nil && f.Err != nil {
			return nil, f.Err
		}
	}
	v.override = v.found(p)
	onDisk, err := v.readDisk()
	if err != nil {
		return nil, err
	}
	pod, err := v.source().Parse()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.role(), err)
	}
	v.pod = pod
	v.managed = p.Manage[v.file] || v.template != nil && !isControlPlane(pod.Name)
	var wants []Want
	for _, img := range pod.Images {
		w := Want{Image: img}
		if d, ok := onDisk[placeOf(img)]; ok {
			w.OnDisk, _ = ParseReference(d)
		}
		w.PullPolicy = pullPolicyOf(img)
		if write := v.pullPolicy(p); write != "" && img.Editable && w.PullPolicy != pullNever {
			w.PullPolicy = write
		}
		if err := w.ask(p, v.managed); err != nil {
			return nil, fmt.Errorf("line %d: %w", img.Line, err)
		}
		w.Ask.Kubeadm = w.Ask.Repository != "" && v.isKubeadm(img)
		wants = append(wants, w)
	}
	return wants, nil
}

// role names the source for an error message.
func (v *podView) role() string {
	if v.template != nil {
		return "template"
	}
	return "pod manifest"
}

// placeOf names an image's place by its container: a template that puts a new
// container first moves all the others.
func placeOf(i manifests.Image) string { return string(i.Kind) + " " + i.Container }

// readDisk gives the references of kubelet's file by place. It must be readable
// even where a template exists: what cannot be read cannot be compared.
func (v *podView) readDisk() (map[string]string, error) {
	if v.disk == nil {
		return nil, nil
	}
	pod, err := v.disk.Parse()
	if err != nil {
		return nil, fmt.Errorf("pod manifest: %w", err)
	}
	v.was = pod
	out := make(map[string]string, len(pod.Images))
	v.named = map[string]bool{}
	for _, img := range pod.Images {
		at, named := v.override.names(img)
		switch {
		case named:
			v.named[placeOf(img)] = true
			out[placeOf(img)] = Reference{at.Repository, at.Follow}.String()
		case pulled(img):
			out[placeOf(img)] = img.Reference
		}
	}
	if v.template == nil && len(v.named) > 0 {
		undone, err := v.override.undone(*v.disk)
		if err != nil {
			return nil, fmt.Errorf("pod manifest: %w", err)
		}
		v.followed = &undone
	}
	return out, nil
}

// ask finds the question that an image reference puts to the source.
func (w *Want) ask(p Policy, managed bool) error {
	if !pulled(w.Image) {
		w.Left = w.Image.Reason
		return nil
	}
	ref := manifests.SplitReference(w.Image.Reference)
	editable := managed && w.Image.Editable
	name := ref.Name
	if editable {
		name = manifests.Rewritten(ref.Name, p.Rewrites)
	}
	repository, err := NormalizeRepository(name)
	if err != nil {
		return err
	}
	tag := ref.Tag
	switch {
	case IsPlaceholder(tag):
		tag = p.value(ref.Name, name, repository)
	case tag == "":
		tag = "latest" // what kubelet makes of it
	}
	// A placeholder that was copied as it is never was a tag.
	rule := p.rule(repository)
	switch {
	case editable && rule.Follow != "":
		tag = rule.Follow
	case w.OnDisk.Repository == repository && !IsPlaceholder(w.OnDisk.Tag):
		tag = higher(tag, w.OnDisk.Tag, rule.Dialect)
	}
	if !editable {
		w.Left = w.Image.Reason
	}
	w.Ask = Question{Repository: repository, Tag: tag, Convert: editable}
	return nil
}

// pulled reports whether kubelet pulls the image by a tag that can be asked for:
// it stands in a container or volume of the first document, and is a reference
// that is not pinned to a digest.
func pulled(i manifests.Image) bool {
	switch i.Kind {
	case manifests.KindContainer, manifests.KindInit, manifests.KindEphemeral, manifests.KindVolume:
	default:
		return false
	}
	switch i.Reason {
	case manifests.ReasonDigest, manifests.ReasonEmpty, manifests.ReasonNotString, manifests.ReasonNotReference:
		return false
	default:
		return i.Document == 0
	}
}

// higher is the tag that says more: the one on disk once the agent has moved
// on, the template's once an OS update brought a newer one. Tags that cannot be
// compared leave the template's word standing.
func higher(template, disk string, d tags.Dialect) string {
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

// questions are the questions of all pods and of the configuration, sorted,
// each once.
func questions(views []podView, p Policy) []Question {
	var qs []Question
	for _, v := range views {
		for _, w := range v.wants {
			if w.Ask.Repository != "" {
				qs = append(qs, w.Ask)
			}
		}
	}
	for _, r := range p.Images {
		qs = append(qs, Question{Repository: r.Repository, Tag: r.Tag})
	}
	slices.SortFunc(qs, func(a, b Question) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(qs)
}

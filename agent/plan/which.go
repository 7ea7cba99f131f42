// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
)

// ErrWhich is returned for a request that names neither images nor all of them, or both.
var ErrWhich = errors.New("want names of images or all images, and not both")

// Which selects images, or all of them: one of the two. An empty list never means all: the caller's selection may be
// gone by then.
type Which struct {
	Images []string `json:"images,omitempty"`
	All    bool     `json:"all,omitempty"`
}

// All selects all images.
func All() Which { return Which{All: true} }

// Named selects images by name: a repository, its last path elements or the file name of a pod manifest.
func Named(images ...string) Which { return Which{Images: images} }

// Check returns ErrWhich unless exactly one of the two is set.
func (w Which) Check() error {
	if w.All == (len(w.Images) > 0) {
		return ErrWhich
	}
	return nil
}

// has reports whether an image of a pod is selected.
func (w Which) has(file string, i ImagePlan) bool {
	return w.All || slices.ContainsFunc(w.Images, func(n string) bool { return n == file || IsNamed(i, n) })
}

// Names reports whether a pod manifest with images of these repositories is selected.
func (w Which) Names(file string, repositories []string) bool {
	return w.All || slices.ContainsFunc(w.Images, func(name string) bool {
		return name == file || slices.ContainsFunc(repositories, func(r string) bool { return IsRepository(r, name) })
	})
}

// Pick returns the selected pods: those that use a selected image. Selecting all leaves out the pods that the
// Kubernetes distribution writes, which are not applied.
func Pick(plan Plan, which Which) ([]PodPlan, error) {
	if err := which.Check(); err != nil {
		return nil, err
	}
	if which.All {
		return slices.DeleteFunc(slices.Clone(plan.Pods), func(p PodPlan) bool { return p.IsOwned() }), nil
	}
	hit := map[string]bool{}
	for _, name := range which.Images {
		found := false
		for _, p := range plan.Pods {
			if p.isNamed(name) {
				hit[p.File], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%s: %w", name, ErrUnknownImage)
		}
	}
	return slices.DeleteFunc(slices.Clone(plan.Pods), func(p PodPlan) bool { return !hit[p.File] }), nil
}

func (p *PodPlan) isNamed(name string) bool {
	return p.File == name || slices.ContainsFunc(p.Images, func(i ImagePlan) bool { return IsNamed(i, name) })
}

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// ErrUnknownImage is returned for a name that matches no tracked image.
var ErrUnknownImage = errors.New("no such image or pod manifest")

// ErrWhich is returned for a request that names neither images nor all of them, or both.
var ErrWhich = errors.New("give names of images or all images, not both")

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
			return nil, unknown(plan, name)
		}
	}
	return slices.DeleteFunc(slices.Clone(plan.Pods), func(p PodPlan) bool { return !hit[p.File] }), nil
}

// maxMeant is the number of pod manifests that an error proposes.
const maxMeant = 3

// unknown returns the error for a name that selects nothing, with the pod manifests whose name, pod or container it is.
func unknown(plan Plan, name string) error {
	var meant []string
	for _, p := range plan.Pods {
		isContainer := func(i ImagePlan) bool { return i.Want.Image.Container == name }
		base := strings.TrimSuffix(p.File, path.Ext(p.File))
		if base == name || path.Base(p.Pod) == name || slices.ContainsFunc(p.Images, isContainer) {
			meant = append(meant, p.File)
		}
	}
	if len(meant) == 0 {
		return fmt.Errorf("%s: %w", name, ErrUnknownImage)
	}
	meant = meant[:min(len(meant), maxMeant)]
	return fmt.Errorf("%s: %w; did you mean %s?", name, ErrUnknownImage, strings.Join(meant, " or "))
}

func (p *PodPlan) isNamed(name string) bool {
	return p.File == name || slices.ContainsFunc(p.Images, func(i ImagePlan) bool { return IsNamed(i, name) })
}

// IsNamed reports whether name selects the image, see IsRepository.
func IsNamed(i ImagePlan, name string) bool {
	return i.Want.Ask.Repository != "" && IsRepository(i.Want.Ask.Repository, name)
}

// IsRepository reports whether name is the repository or its last path elements.
func IsRepository(repository, name string) bool {
	return repository == name || strings.HasSuffix(repository, "/"+name)
}

// IsUnstaged reports whether only staging is missing for the pod's offer.
func IsUnstaged(p PodPlan) bool {
	at := p.Standing()
	return at.Result == status.ResultHeld && !at.Staged
}

// approved reports whether the pod's current offer is to be applied: a person has approved it, its set has begun, or
// mode auto approves what is staged, not held and waits for nothing, but never a removal. auto is the approval by mode
// auto; nil: it is not needed.
func (f *facts) approved(p *PodPlan) (auto *record.Approval, ok bool) {
	if p.Offer == "" || len(p.Holds) > 0 {
		return nil, false
	}
	was, recorded := f.rec.Approved[p.File]
	byPerson := recorded && was.Offer == p.Offer && was.IsValid(f.now) && was.By.Kind != status.ByAuto
	isReady := p.Ready && len(p.Waits) == 0 && p.Change != policy.ChangeRemove
	switch {
	case byPerson || isReady && p.GoesOn:
		return nil, true
	case !isReady || !f.policy.Auto:
		return nil, false
	}
	approval := p.Approval(was, f.now)
	approval.By = status.Actor{Kind: status.ByAuto}
	return &approval, true
}

// Approval returns an approval of the pod's current offer. was is the previous approval: its interrupted apply may have
// stopped the pod, and what ran before that counts.
func (p *PodPlan) Approval(was record.Approval, now time.Time) record.Approval {
	out := record.Approval{At: now, Offer: p.Offer, WasHealthy: true}
	if was.Offer == p.Offer {
		out.WasHealthy, out.Ran = was.WasHealthy, was.Ran
		return out
	}
	for _, i := range p.Images {
		switch {
		case !i.mustRun():
		case i.Well:
			out.Ran = append(out.Ran, i.Want.Image.Container)
		default:
			out.WasHealthy = false
		}
	}
	if out.WasHealthy {
		out.Ran = nil // all of them
	}
	return out
}

// mustRun reports whether an image is that of a regular container in the pod manifest on disk.
func (i ImagePlan) mustRun() bool {
	return i.Want.Image.Kind == manifests.KindContainer && i.Want.OnDisk.Repository != ""
}

// Releases returns the releases (repository@digest) that run in the pod or are offered to it.
func (p *PodPlan) Releases() []string {
	var out []string
	for _, i := range p.Images {
		for _, rel := range i.Offer.Known() {
			out = append(out, release.Key(i.Want.Ask.Repository, rel.Digest))
		}
		out = append(out, release.Key(i.Want.Ask.Repository, i.Running.Digest))
	}
	return out
}

// Shown is an offer as a person saw it. An approval is for digests: other digests are not approved.
type Shown struct {
	Image  string        `json:"image"` // a repository, or its last path elements
	Digest digest.Digest `json:"digest"`
}

// ParseShown reads IMAGE=sha256:DIGEST.
func ParseShown(text string) (Shown, error) {
	image, d, found := strings.Cut(text, "=")
	if !found || image == "" {
		return Shown{}, fmt.Errorf("%q: want IMAGE=sha256:DIGEST", text)
	}
	parsed, err := digest.Parse(d)
	if err != nil {
		return Shown{}, fmt.Errorf("%q: %w: want IMAGE=sha256:DIGEST", text, err)
	}
	return Shown{image, parsed}, nil
}

// ErrNotSelected is returned for an expected digest of an image that is not selected.
var ErrNotSelected = errors.New("not among the selected images")

// MovedError is returned if the current offers differ from those that the caller saw.
type MovedError struct{ Moved []Moved }

// Moved is one difference. A digest is empty if none was expected, or if none is offered.
type Moved struct {
	PodManifest string        `json:"podManifest"`
	Container   string        `json:"container"`
	Image       string        `json:"image"` // repository
	Expected    digest.Digest `json:"expected"`
	Offered     digest.Digest `json:"offered"`
	Tag         string        `json:"tag"` // of Offered
}

func (e *MovedError) Error() string {
	texts := make([]string, 0, len(e.Moved))
	for _, m := range e.Moved {
		texts = append(texts, m.String())
	}
	return "the offer has changed: " + strings.Join(texts, "; ")
}

func (m Moved) String() string {
	expected, offered := "no update was expected", "nothing is offered now"
	if m.Expected != "" {
		expected = m.Expected.String() + " was expected"
	}
	if m.Offered != "" {
		offered = fmt.Sprintf("%s (%s) is offered now", m.Offered, m.Tag)
	}
	return fmt.Sprintf("%s: %s: %s, %s", m.PodManifest, m.Image, expected, offered)
}

// CheckShown compares the current offers of the selected pods with those that a person saw; an empty shown is not
// compared. Every offered digest must be among the shown ones, and every shown digest must be offered or already
// running. A held or failed pod is not compared: its outcome says why it is not applied.
func CheckShown(pl Plan, selected []PodPlan, shown []Shown) error {
	if len(shown) == 0 {
		return nil
	}
	for _, s := range shown {
		isNamed := func(p PodPlan) bool { return slices.ContainsFunc(p.Images, s.names) }
		switch {
		case slices.ContainsFunc(selected, isNamed):
		case slices.ContainsFunc(pl.Pods, isNamed):
			return fmt.Errorf("expect %s: %w", s.Image, ErrNotSelected)
		default:
			return fmt.Errorf("expect %s: %w", s.Image, ErrUnknownImage)
		}
	}
	all := places(selected, shown)
	moved := append(notShown(all, shown), notOffered(all, shown)...)
	if len(moved) > 0 {
		return &MovedError{moved}
	}
	return nil
}

func (s Shown) names(i ImagePlan) bool { return IsNamed(i, s.Image) }

// place is an image of a selected pod.
type place struct {
	file string
	ImagePlan
	compared   bool          // an apply would restart the pod, or has nothing to do
	current    digest.Digest // offered, or else running
	unexpected bool          // the offered digest was not shown
}

func places(selected []PodPlan, shown []Shown) []place {
	var out []place
	for _, p := range selected {
		at := p.Standing()
		compared := at.Result == "" || at.Result == status.ResultNothing || !at.Staged
		for _, i := range p.Images {
			one := place{file: p.File, ImagePlan: i, compared: compared, current: i.Running.Digest}
			if i.Change != "" {
				one.current = i.Target.Digest
				wasShown := func(s Shown) bool { return s.names(i) && s.Digest == i.Target.Digest }
				one.unexpected = compared && !slices.ContainsFunc(shown, wasShown)
			}
			out = append(out, one)
		}
	}
	return out
}

// notShown returns the offered digests that were not shown.
func notShown(all []place, shown []Shown) []Moved {
	var out []Moved
	for _, i := range all {
		if !i.unexpected {
			continue
		}
		m := Moved{
			PodManifest: i.file, Container: i.Want.Image.Container, Image: i.Want.Ask.Repository,
			Offered: i.Target.Digest, Tag: i.Target.Name(),
		}
		if n := slices.IndexFunc(shown, func(s Shown) bool { return s.names(i.ImagePlan) }); n >= 0 {
			m.Expected = shown[n].Digest
		}
		out = append(out, m)
	}
	return out
}

// notOffered returns the shown digests of images that neither are offered nor run; notShown has those of images with
// another offer.
func notOffered(all []place, shown []Shown) []Moved {
	var out []Moved
	for _, s := range shown {
		named := slices.DeleteFunc(slices.Clone(all), func(i place) bool { return !s.names(i.ImagePlan) })
		if slices.ContainsFunc(named, func(i place) bool { return !i.compared || i.unexpected || s.Digest == i.current }) {
			continue
		}
		i := named[0]
		out = append(out, Moved{
			PodManifest: i.file, Container: i.Want.Image.Container, Image: i.Want.Ask.Repository, Expected: s.Digest,
		})
	}
	return out
}

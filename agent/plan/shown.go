// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/status"
)

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
	moved := append(notShown(selected, shown), notOffered(selected, shown)...)
	if len(moved) > 0 {
		return &MovedError{moved}
	}
	return nil
}

func (s Shown) names(i ImagePlan) bool { return IsNamed(i, s.Image) }

// isCompared reports whether an apply would restart the pod, or has nothing to do.
func isCompared(p PodPlan) bool {
	at := p.Standing()
	return at.Result == "" || at.Result == status.ResultNothing || !at.Staged
}

// place is an image of a selected pod.
type place struct {
	file     string
	compared bool
	ImagePlan
}

func places(selected []PodPlan) []place {
	var out []place
	for _, p := range selected {
		for _, i := range p.Images {
			out = append(out, place{p.File, isCompared(p), i})
		}
	}
	return out
}

// isUnexpected reports whether the image's offered digest was not shown.
func (i place) isUnexpected(shown []Shown) bool {
	return i.compared && i.Change != "" && !slices.ContainsFunc(shown, func(s Shown) bool {
		return s.names(i.ImagePlan) && s.Digest == i.Target.Digest
	})
}

// fits reports whether a shown digest is offered for the image, or already running.
func (s Shown) fits(i place) bool {
	current := i.Running.Digest
	if i.Change != "" {
		current = i.Target.Digest
	}
	return !i.compared || s.Digest == current
}

// notShown returns the offered digests that were not shown.
func notShown(selected []PodPlan, shown []Shown) []Moved {
	var out []Moved
	for _, i := range places(selected) {
		if !i.isUnexpected(shown) {
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

// notOffered returns the shown digests of images without any offer; notShown has the others.
func notOffered(selected []PodPlan, shown []Shown) []Moved {
	var out []Moved
	for _, s := range shown {
		named := slices.DeleteFunc(places(selected), func(i place) bool { return !s.names(i.ImagePlan) })
		if slices.ContainsFunc(named, s.fits) ||
			slices.ContainsFunc(named, func(i place) bool { return i.isUnexpected(shown) }) {
			continue
		}
		i := named[0]
		out = append(out, Moved{
			PodManifest: i.file, Container: i.Want.Image.Container, Image: i.Want.Ask.Repository, Expected: s.Digest,
		})
	}
	return out
}

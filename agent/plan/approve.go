// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// ErrUnknownImage is returned for a name that matches no tracked image.
var ErrUnknownImage = errors.New("no such image or pod manifest")

// IsUnstaged reports whether only staging is missing for the pod's offer.
func IsUnstaged(p PodPlan) bool {
	at := p.Standing()
	return at.Result == status.ResultHeld && !at.Staged
}

// IsNamed reports whether name selects the image, see IsRepository.
func IsNamed(i ImagePlan, name string) bool {
	return i.Want.Ask.Repository != "" && IsRepository(i.Want.Ask.Repository, name)
}

// IsRepository reports whether name is the repository or its last path elements.
func IsRepository(repository, name string) bool {
	return repository == name || strings.HasSuffix(repository, "/"+name)
}

// Approval returns an approval of the pod's current offer. was is the one before: an interrupted apply of the
// same offer may have stopped the pod, and what ran before that counts.
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

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// refuses returns why a release is not offered, whatever runs.
func (f *facts) refuses(rel release.Release, rule policy.Rule) (policy.Refusal, bool) {
	if no, refused := f.policy.RefusesListed(f.inv.Catalog, rel); refused {
		return no, true
	}
	return f.rec.Refuses(rel, rule)
}

// binds reports whether the wanted pod manifest names the target's digest beside its tag, so that
// kubelet does not start what the publisher has not promoted. What is bound stays so without the catalog.
func (f *facts) binds(v follow.PodView, i ImagePlan) bool {
	_, isBound := v.Bound[node.PlaceOf(i.Want.Image)]
	return v.Managed && i.Want.Ask.Convert && node.IsContainer(i.Want.Image) && i.Want.Image.Document == 0 &&
		i.Target.Digest != "" && !f.isPinned(v, i) && i.Want.PullPolicy != node.PullNever &&
		(isBound || f.inv.Catalog.IsListed(i.Target.Repository))
}

// bound returns the digests in the wanted pod manifest that the catalog lists, by place.
func (p *PodPlan) bound() map[string]digest.Digest {
	out := map[string]digest.Digest{}
	for _, i := range p.Images {
		if i.Bound {
			out[node.PlaceOf(i.Want.Image)] = i.Target.Digest
		}
	}
	return out
}

// bind puts the digests of listed releases into a rendered pod manifest.
func bind(p *PodPlan, file *manifests.File) (*manifests.File, error) {
	pins := map[string][]manifests.Pinned{}
	for _, i := range p.Images {
		if !i.Bound {
			continue
		}
		reference := release.Reference{Repository: i.Target.Repository, Tag: i.Target.Tag}
		pins[i.Want.PullPolicy] = append(pins[i.Want.PullPolicy], manifests.Pinned{
			Kind: i.Want.Image.Kind, Container: i.Want.Image.Container,
			Reference: reference.String() + "@" + i.Target.Digest.String(),
		})
	}
	for _, pullPolicy := range []string{manifests.PullAlways, manifests.PullIfNotPresent} {
		if len(pins[pullPolicy]) == 0 {
			continue
		}
		var err error
		if file, err = file.Pin(pins[pullPolicy], pullPolicy); err != nil {
			return nil, err
		}
	}
	return file, nil
}

// addCatalogWaits makes automatic applies wait while the catalog has expired, and for the
// node's time in a rollout.
func (f *facts) addCatalogWaits(p *PodPlan) {
	l := f.inv.Catalog
	follows := slices.ContainsFunc(p.Images, func(i ImagePlan) bool { return l.IsListed(i.Target.Repository) })
	if follows && l.IsExpired(f.now) && !f.policy.Catalog.IgnoreExpiry {
		p.Waits = append(p.Waits, status.Hold{
			Name: status.HoldCatalog, Reason: l.Catalog + " has expired at " + l.Expires.UTC().Format(time.RFC3339),
		})
	}
	for _, i := range p.Images {
		is, listed := l.Find(i.Target.Repository, i.Target.Digest)
		if at := f.policy.Catalog.RolloutTime(is); listed && i.Change != "" && f.now.Before(at) {
			p.Waits = append(p.Waits, status.Hold{
				Name: status.HoldRollout, Image: i.Target.Repository, Until: at.UTC(),
				Reason: fmt.Sprintf("%s is rolled out to this node at %s", is.Tag, at.UTC().Format(time.RFC3339)),
			})
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// refuses returns why a release is not offered, independent of the running one.
func (f *facts) refuses(rel release.Release, rule policy.Rule) (policy.Refusal, bool) {
	if no, refused := f.policy.RefusesListed(f.inv.Catalog, rel); refused {
		return no, true
	}
	return f.rec.Refuses(rel, rule)
}

// binds reports whether the wanted pod manifest has the target's digest next to its tag, so that kubelet does not start
// a release that the publisher has not promoted. A bound pod stays bound without the catalog.
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

// addCatalogWaits delays automatic applies while the catalog has expired, and until the node's time in a rollout.
func (f *facts) addCatalogWaits(p *PodPlan) {
	l := f.inv.Catalog
	follows := slices.ContainsFunc(p.Images, func(i ImagePlan) bool { return l.IsListed(i.Target.Repository) })
	if follows && l.IsExpired(f.now) && !f.policy.Catalog.IgnoreExpiry {
		p.Waits = append(p.Waits, status.Hold{
			Name: status.HoldCatalog, Reason: l.Catalog + " expired at " + l.Expires.UTC().Format(time.RFC3339),
		})
	}
	for _, i := range p.Images {
		is, listed := l.Find(i.Target.Repository, i.Target.Digest)
		if at := f.policy.Catalog.RolloutTime(is); listed && i.Change != "" && f.now.Before(at) {
			p.Waits = append(p.Waits, rolloutHold(i.Target.Repository, is, at.UTC()))
		}
	}
}

// rolloutHold returns the hold on a release whose rollout reaches this node at a time. A paused rollout has no time.
func rolloutHold(repository string, is catalog.Listed, at time.Time) status.Hold {
	h := status.Hold{Name: status.HoldRollout, Image: repository}
	if is.Rollout.Paused {
		h.Reason = "the publisher paused the rollout of " + is.Tag
		return h
	}
	h.Until, h.Reason = at, fmt.Sprintf("%s rolls out to this node at %s", is.Tag, at.Format(time.RFC3339))
	return h
}

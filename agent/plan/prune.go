// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// prune lists the image records of old releases: the staged ones, and with Prune.Unstaged all SUSE builds of followed
// repositories. Pinned and used images stay, and so do repositories that are not settled. While any pod is unclear, all
// records stay.
func (f *facts) prune(plan Plan, pins []release.Pin) []node.HeldImage {
	settled, known := f.settled(plan)
	if !known {
		return nil
	}
	need := map[digest.Digest]bool{}
	for _, p := range pins {
		need[p.Digest] = true
	}
	var gone []node.HeldImage
	used := map[digest.Digest]bool{}
	for _, d := range f.inv.Used {
		used[d] = true
	}
	aliases := map[node.HeldImage]bool{}
	for _, h := range f.inv.Held {
		repository, old := f.isOldRelease(h, settled)
		if !old || need[h.Digest] || used[h.Config] {
			continue
		}
		if well, followed := settled[repository]; followed && !well {
			continue
		}
		gone = append(gone, h)
		aliases[node.HeldImage{Name: release.Key(repository, h.Digest), Digest: h.Digest}] = true
		aliases[node.HeldImage{Name: h.Config.String(), Digest: h.Digest}] = true
	}
	gone = append(gone, f.inv.OrphanedAliases(gone, aliases)...)
	slices.SortFunc(gone, func(a, b node.HeldImage) int { return strings.Compare(a.Name, b.Name) })
	return gone
}

// settled returns for each followed repository whether all of its images run as planned. A mounted image volume is not
// visible, so its repository is never settled. known: no pod and no image is unclear.
func (f *facts) settled(plan Plan) (settled map[string]bool, known bool) {
	settled = map[string]bool{}
	add := func(repository string, well bool) {
		before, seen := settled[repository]
		settled[repository] = (before || !seen) && well
	}
	for _, p := range plan.Pods {
		if p.Err != nil || p.BlocksOffer() {
			return nil, false
		}
		for _, i := range p.Images {
			if name := i.Want.Ask.Repository; name != "" {
				add(name, isWell(&p, i))
			}
		}
	}
	for _, i := range plan.Tracked {
		if i.Target.Digest == "" {
			return nil, false
		}
		add(i.Target.Repository, i.Staged)
	}
	return settled, true
}

// isWell reports whether a container runs as it should. A removed init container has succeeded
// if the containers of its pod run.
func isWell(p *PodPlan, i ImagePlan) bool {
	return i.Well || i.Want.Image.Kind == manifests.KindInit && slices.ContainsFunc(p.Images, func(other ImagePlan) bool {
		return other.Well && other.Want.Image.Kind == manifests.KindContainer
	})
}

// isOldRelease reports whether an image record may be an old release, and of which repository.
func (f *facts) isOldRelease(h node.HeldImage, followed map[string]bool) (repository string, is bool) {
	if h.Pin {
		return "", false
	}
	if h.Staged || !f.policy.Prune.Unstaged {
		return h.Repository, h.Staged
	}
	ref, err := release.ParseReference(h.Name)
	if err != nil {
		return "", false
	}
	_, ours := followed[ref.Repository]
	_, unrecognized := f.policy.RuleFor(ref.Repository).Scheme.Parse(ref.Tag)
	return ref.Repository, ours && unrecognized == nil
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// prune lists the image records of old releases: those that staging brought, and
// with Prune.Foreign all SUSE builds of followed repositories. What a pin will
// hold, what any container uses, and everything of a repository one of whose
// containers does not run as it should stays. While anything is unclear nothing
// goes.
func (d *decider) prune(plan Plan, pins []Pin) []HeldImage {
	repositories, known := d.settled(plan)
	if !known {
		return nil
	}
	need := map[digest.Digest]bool{}
	for _, p := range pins {
		need[p.Digest] = true
	}
	var gone []HeldImage
	for _, h := range d.inv.Held {
		repository, old := d.old(h, repositories)
		if !old || need[h.Digest] || slices.Contains(d.inv.Used, h.Config) {
			continue
		}
		if well, followed := repositories[repository]; followed && !well {
			continue
		}
		gone = append(gone, h)
		gone = append(gone, d.shadows(h, repository)...)
	}
	slices.SortFunc(gone, func(a, b HeldImage) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(gone, func(a, b HeldImage) bool { return a.Name == b.Name })
}

// settled are the followed repositories, and whether all that runs of them runs
// as it should. known: every pod and image is known.
func (d *decider) settled(plan Plan) (well map[string]bool, known bool) {
	well = map[string]bool{}
	for _, p := range plan.Pods {
		if p.Err != nil || p.withheld() {
			return nil, false
		}
		for _, i := range p.Images {
			name := i.Want.Ask.Repository
			if name == "" {
				continue
			}
			before, seen := well[name]
			well[name] = (before || !seen) && (i.Well || !isContainer(i.Want.Image))
		}
	}
	for _, i := range plan.Tracked {
		if i.Target.Digest == "" {
			return nil, false
		}
		if _, seen := well[i.Target.Repository]; !seen {
			well[i.Target.Repository] = true
		}
	}
	return well, true
}

// old reports whether a record may be an old release, and of which repository.
func (d *decider) old(h HeldImage, followed map[string]bool) (repository string, is bool) {
	if h.Pin {
		return "", false
	}
	if h.Staged || !d.policy.Prune.Foreign {
		return h.Repository, h.Staged
	}
	ref, err := d.policy.memory.reference(h.Name)
	if err != nil {
		return "", false
	}
	_, ours := followed[ref.Repository]
	_, foreign := d.policy.rule(ref.Repository).Dialect.Parse(ref.Tag)
	return ref.Repository, ours && foreign == nil
}

// shadows are the records that CRI made beside a pull of the same image:
// repository@digest and the bare image id. They go with it, unless somebody else
// has a name for the digest, too.
func (d *decider) shadows(h HeldImage, repository string) []HeldImage {
	var out []HeldImage
	for _, other := range d.inv.Held {
		switch {
		case other.Digest != h.Digest || other.Name == h.Name || other.Pin:
		case other.Name == releaseKey(repository, h.Digest), h.Config != "" && other.Name == h.Config.String():
			out = append(out, other)
		case other.Staged && other.Repository == repository:
		default:
			return nil
		}
	}
	return out
}

// prune removes old releases. A container may have been started from one since
// the plan was made.
func (a *Agent) prune(ctx context.Context, gone []HeldImage) error {
	_, used, err := a.Pods.Containers(ctx)
	if err != nil {
		return err
	}
	return a.Images.Prune(ctx, slices.DeleteFunc(slices.Clone(gone), func(h HeldImage) bool {
		return slices.Contains(used, h.Config)
	}))
}

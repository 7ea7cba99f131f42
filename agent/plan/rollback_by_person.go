// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Rollback is a person's rollback of one pod.
type Rollback struct {
	Pod   PodPlan
	To    *record.Override // the rollback target; nil: none is known
	Edits []status.Edit
	Err   error // why the target is unknown
}

// Rollbacks plans a person's rollback of pods: the named images (no names: all) return to the
// releases that ran well before. It skips pods whose files are gone. It is pure.
func Rollbacks(
	inv node.Inventory, rec record.Record, p policy.Policy, now time.Time, pods []PodPlan, names []string,
) []Rollback {
	f, views := observed(inv, nil, rec, p, now)
	var out []Rollback
	for _, pod := range pods {
		at := slices.IndexFunc(views, func(v follow.PodView) bool { return v.File == pod.File })
		if at < 0 {
			continue
		}
		r := Rollback{Pod: pod, Err: pod.Err}
		if r.Err == nil {
			r.To, r.Err = restartPlanner{f}.byPerson(views[at], pod, names)
		}
		if r.To != nil {
			r.Edits = rollbackEdits(*r.To, pod)
		}
		out = append(out, r)
	}
	return out
}

// byPerson returns an override that returns the named images to what ran well before and keeps
// the others; nil: no target is known. Images that CRI does not show are kept.
func (rp restartPlanner) byPerson(v follow.PodView, p PodPlan, names []string) (*record.Override, error) {
	if v.Disk == nil {
		return nil, nil
	}
	running := map[string]digest.Digest{}
	for _, i := range p.Images {
		named := len(names) == 0 || slices.Contains(names, p.File) ||
			slices.ContainsFunc(names, func(n string) bool { return IsNamed(i, n) })
		if node.IsContainer(i.Want.Image) && named {
			running[i.Want.Image.Container] = i.Running.Digest
		}
	}
	another := false
	o, err := rp.overrideTo(v, func(container string, g record.Good) release.Pin {
		if running[container] == "" {
			return release.Pin{Repository: g.Repository, Digest: g.Running}
		}
		for _, pin := range append([]release.Pin{{Repository: g.Repository, Digest: g.Running}}, g.Before...) {
			_, denied := rp.rec.Denied[release.Key(pin.Repository, pin.Digest)]
			if pin.Digest != running[container] && !denied {
				another = another || pin.Digest != ""
				return pin
			}
		}
		return release.Pin{Repository: g.Repository, Digest: g.Running}
	})
	if err != nil || !another {
		return nil, err
	}
	o.Reason, o.ByHand, o.From = record.ByHand, true, digest.FromBytes(v.Disk.Data)
	return &o, nil
}

// rollbackEdits returns the images that an override changes.
func rollbackEdits(o record.Override, p PodPlan) []status.Edit {
	var out []status.Edit
	for _, i := range p.Images {
		at, ok := o.Images[node.PlaceOf(i.Want.Image)]
		if ok && at.Digest != i.Running.Digest {
			out = append(out, status.Edit{
				Container: i.Want.Image.Container, Field: status.EditImage,
				From: cmp.Or(i.Running.Tag, string(i.Running.Digest)), To: at.Tag,
			})
		}
	}
	return out
}

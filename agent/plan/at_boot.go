// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// BootStep is the decision about one pod manifest that differs from its template.
type BootStep struct {
	Step       // Do is empty if the file is kept
	Reason     string
	Err        error    // set by the caller: the step failed
	Ends       []string // places of its override that the template replaces
	IsRendered bool     // Was equals the rendered template, whatever the record has
	Images     []ImagePlan
}

// AtBoot plans the writes before kubelet starts. It is pure.
func AtBoot(inv node.Inventory, rec record.Record, p policy.Policy, now time.Time) []BootStep {
	f, views := observed(inv, nil, rec, p, now)
	var steps []BootStep
	for _, v := range views {
		s := BootStep{Step: Step{File: v.File, Was: node.PodFile{Name: v.File}}}
		if v.Disk != nil {
			s.Was = *v.Disk
		}
		f.atBoot(v, &s)
		switch {
		case s.Do == "" && s.Reason == "" && !s.IsRendered:
			continue
		case s.Do != "" && inv.Busy != "":
			s.keepAsIs("%s", inv.Busy)
		}
		steps = append(steps, s)
	}
	f.keepHalvesAtBoot(views, steps)
	return steps
}

func (s *BootStep) keepAsIs(format string, args ...any) {
	s.Do, s.Data, s.Reason = "", nil, fmt.Sprintf(format, args...)
}

func (f *facts) atBoot(v follow.PodView, s *BootStep) {
	p := PodPlan{File: v.File, Pod: v.Pod.Name, Role: v.Role()}
	switch {
	case v.Err != nil:
		s.keepAsIs("%v", v.Err)
	case v.Duplicate.Is():
		s.keepAsIs("%s: %s", status.HoldDuplicate, v.Duplicate)
	case v.ReadOnly != nil:
		// The agent must not write it.
	case v.Override.Pending:
		if string(s.Was.Data) != v.Override.Data {
			s.Do, s.Data, s.Ours, s.Reason = StepWrite, []byte(v.Override.Data), v.Template != nil, v.Override.Reason
		}
	case f.planOrphan(v, &p):
		s.Do, s.Reason = StepRemove, "its template is gone"
		f.holdAtBoot(v, p, s)
	case v.Template == nil || !v.Managed:
		// The agent does not manage it.
	default:
		f.renderTemplate(v, &p, s)
	}
}

// holdAtBoot keeps a held pod manifest. Holds on images that the template drops count, too.
func (f *facts) holdAtBoot(v follow.PodView, p PodPlan, s *BootStep) {
	for _, img := range v.Was.Images {
		if ref, err := release.ParseReference(img.Reference); err == nil {
			p.Images = append(p.Images, ImagePlan{Want: follow.Want{Ask: release.Question{Repository: ref.Repository}}})
		}
	}
	f.addHolds(&p)
	f.addWaits(&p)
	if len(p.Holds) > 0 {
		s.keepAsIs("%s: %s", p.Holds[0].Name, p.Holds[0].Reason)
	}
}

// renderTemplate renders the template with its own tags, or with those on disk if they are higher.
func (f *facts) renderTemplate(v follow.PodView, p *PodPlan, s *BootStep) {
	why := ""
	for _, w := range v.Wants {
		i := ImagePlan{Want: w}
		var moves bool
		i.Target, moves = f.bootTarget(w)
		at, named := v.PinnedAt(w.Image)
		switch {
		case named && !moves:
			i.Target.Digest = at.Digest
		case !moves && i.Target.Digest == "":
			i.Target.Digest = v.Bound[node.PlaceOf(w.Image)].Digest
		case named && i.Target.Digest != at.Digest:
			s.Ends = append(s.Ends, node.PlaceOf(w.Image))
		}
		if moves && why == "" {
			why = f.bootRefusal(v, i.Target, w)
		}
		i.Bound = f.binds(v, i)
		p.Images = append(p.Images, i)
	}
	f.render(v, p)
	s.Images = p.Images
	switch {
	case p.Err != nil:
		s.keepAsIs("%v", p.Err)
	case v.Disk != nil && !p.Waiting:
		_, once := f.rec.Wrote[v.File]
		s.IsRendered = once && !f.unedited(*v.Disk) && p.matches(v.Disk)
	case v.Disk != nil && !f.unedited(*v.Disk):
		s.keepAsIs("it was changed since the agent wrote it")
	case v.Disk != nil && f.isConfigured(v, *p):
		s.keepAsIs("only its pull policy would change")
	case why != "":
		s.keepAsIs("%s", why)
	case v.Disk == nil:
		s.Do, s.Data, s.Ours, s.Reason = StepWrite, p.Wanted, true, "its template is new"
	default:
		s.Do, s.Data, s.Ours, s.Reason = StepWrite, p.Wanted, true, "its template has changed"
		f.holdAtBoot(v, *p, s)
	}
}

// isConfigured reports whether only the pull policy differs: that change comes from the
// configuration, not from a new system.
func (f *facts) isConfigured(v follow.PodView, p PodPlan) bool {
	other := *f
	other.policy.PullPolicy = manifests.PullAlways
	if f.policy.PullPolicy == manifests.PullAlways {
		other.policy.PullPolicy = manifests.PullIfNotPresent
	}
	other.render(v, &p)
	return p.Err == nil && !p.Waiting
}

// unedited reports whether the pod manifest is as the agent last wrote it.
func (f *facts) unedited(disk node.PodFile) bool {
	return f.rec.Wrote[disk.Name] == digest.FromBytes(disk.Data)
}

// BootErrors joins the errors of the steps.
func BootErrors(steps []BootStep) error {
	var all []error
	for _, s := range steps {
		if s.Err != nil {
			all = append(all, fmt.Errorf("%s: %w", s.File, s.Err))
		}
	}
	return errors.Join(all...)
}

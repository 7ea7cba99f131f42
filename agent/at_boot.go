// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/manifests"
)

// BootStep is what becomes of a pod manifest whose template says something else,
// before kubelet starts.
type BootStep struct {
	Step   // Do is empty where it stays as it is
	Reason string
	Err    error    // why the step could not be done
	ends   []string // places of its override that a template has moved on
	ours   bool     // Was is to the byte what the agent writes, whatever it wrote last
}

// AtBoot decides what Boot does. It is pure, as Decide is.
func AtBoot(inv Inventory, rec Record, p Policy, now time.Time) []BootStep {
	d, views := newDecider(inv, nil, rec, p, now)
	var steps []BootStep
	for _, v := range views {
		s := BootStep{Step: Step{File: v.file, Was: PodFile{Name: v.file}}}
		if v.disk != nil {
			s.Was = *v.disk
		}
		d.atBoot(v, &s)
		switch {
		case s.Do == "" && s.Reason == "" && !s.ours:
			continue
		case s.Do != "" && inv.Busy != "":
			s.stays("%s", inv.Busy)
		}
		steps = append(steps, s)
	}
	return steps
}

func (s *BootStep) stays(format string, args ...any) {
	s.Do, s.Data, s.Reason = "", nil, fmt.Sprintf(format, args...)
}

// atBoot plans one pod manifest.
func (d *decider) atBoot(v podView, s *BootStep) {
	p := PodPlan{File: v.file, Pod: v.pod.Name}
	switch {
	case v.err != nil:
		s.stays("%v", v.err)
	case v.override.Pending:
		if string(s.Was.Data) != v.override.Data {
			s.Do, s.Data, s.Ours, s.Reason = StepWrite, []byte(v.override.Data), v.template != nil, v.override.Reason
		}
	case d.orphan(v, &p):
		s.Do, s.Reason = StepRemove, "its template is gone"
		d.heldAtBoot(v, p, s)
	case v.template == nil || !v.managed:
		// Not ours.
	default:
		d.toTemplate(v, &p, s)
	}
}

// heldAtBoot has a pod manifest stay that anybody holds: also one whose image the
// template takes away, or takes from elsewhere.
func (d *decider) heldAtBoot(v podView, p PodPlan, s *BootStep) {
	for _, img := range v.was.Images {
		if ref, err := ParseReference(img.Reference); err == nil {
			p.Images = append(p.Images, ImagePlan{Want: Want{Ask: Question{Repository: ref.Repository}}})
		}
	}
	d.holds(&p)
	d.waitsFor(&p)
	if len(p.Holds) > 0 {
		s.stays("%s: %s", p.Holds[0].Name, p.Holds[0].Reason)
	}
}

// toTemplate renders a pod manifest with the tags of its template, and with what is
// on disk where that is higher.
func (d *decider) toTemplate(v podView, p *PodPlan, s *BootStep) {
	why := ""
	for _, w := range v.wants {
		i := ImagePlan{Want: w}
		var moves bool
		i.Target, moves = d.bootTarget(w)
		at, named := v.overridden(w.Image)
		switch {
		case named && !moves:
			i.Target.Digest = at.Digest
		case named && i.Target.Digest != at.Digest:
			s.ends = append(s.ends, placeOf(w.Image))
		}
		if moves && why == "" {
			why = d.speaksAgainst(v, i.Target, w)
		}
		p.Images = append(p.Images, i)
	}
	d.render(v, p)
	switch {
	case p.Err != nil:
		s.stays("%v", p.Err)
	case v.disk != nil && !p.Waiting:
		_, once := d.rec.Wrote[v.file]
		s.ours = once && !d.unedited(*v.disk) && p.same(v.disk)
	case v.disk != nil && !d.unedited(*v.disk):
		s.stays("it is not what the agent wrote last")
	case v.disk != nil && d.isConfigured(v, *p):
		s.stays("only its pull policy is another")
	case why != "":
		s.stays("%s", why)
	case v.disk == nil:
		s.Do, s.Data, s.Ours, s.Reason = StepWrite, p.Wanted, true, "its template is new"
	default:
		s.Do, s.Data, s.Ours, s.Reason = StepWrite, p.Wanted, true, "its template is another"
		d.heldAtBoot(v, *p, s)
	}
}

// isConfigured reports whether nothing is another but the pull policy, which the
// configuration names, and no system.
func (d *decider) isConfigured(v podView, p PodPlan) bool {
	other := *d
	other.policy.PullPolicy = manifests.PullAlways
	if d.policy.PullPolicy == manifests.PullAlways {
		other.policy.PullPolicy = manifests.PullIfNotPresent
	}
	other.render(v, &p)
	return p.Err == nil && !p.Waiting
}

// unedited reports whether a pod manifest is what the agent wrote last.
func (d *decider) unedited(disk PodFile) bool {
	return d.rec.Wrote[disk.Name] == digest.FromBytes(disk.Data)
}

// BootErrors joins what went wrong.
func BootErrors(steps []BootStep) error {
	var all []error
	for _, s := range steps {
		if s.Err != nil {
			all = append(all, fmt.Errorf("%s: %w", s.File, s.Err))
		}
	}
	return errors.Join(all...)
}

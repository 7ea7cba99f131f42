// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"path"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// addWaits adds the delays of an apply: a freeze, and for mode auto the window, the control plane, a contradiction of
// names and times, and an earlier failure.
func (f *facts) addWaits(p *PodPlan) {
	if !f.rec.HasPassed(f.policy.Freeze, f.now) {
		until := f.policy.Freeze.UTC()
		p.Holds = append(p.Holds, status.Hold{
			Name: status.HoldFreeze, Reason: "no updates before " + until.Format(time.RFC3339), Until: until,
		})
	}
	if !f.policy.Auto || p.IsUnmanaged() {
		return
	}
	if open, change := f.policy.IsWindowOpen(f.now); !open {
		opens := change.UTC()
		p.Waits = append(p.Waits, status.Hold{
			Name: status.HoldWindow, Reason: "the next maintenance window opens at " + opens.Format(time.RFC3339), Until: opens,
		})
	}
	if f.rec.Lost != nil {
		p.Waits = append(p.Waits, status.Hold{Name: status.HoldRecord, Reason: f.rec.Lost.Reason})
	}
	if follow.IsControlPlane(p.Role) && !f.policy.Lock.Covers(true) {
		p.Waits = append(
			p.Waits, status.Hold{Name: status.HoldControlPlane, Reason: p.Pod + " is applied by hand, node by node"},
		)
	}
	for _, i := range p.Images {
		if i.Change != "" && i.Contradiction != "" {
			p.Waits = append(p.Waits, status.Hold{
				Name: status.HoldContradiction, Image: i.Target.Repository, Reason: i.Contradiction,
			})
		}
	}
	p.Waits = append(p.Waits, f.waitsForLock(p)...)
	if failure, failed := f.rec.Failed[p.File]; failed && failure.Offer == p.ID {
		p.Waits = append(p.Waits, status.Hold{Name: status.HoldFailed, Reason: failure.Reason})
	}
}

// waitsForLock returns the hold of a pod that waits for the fleet lock.
func (f *facts) waitsForLock(p *PodPlan) []status.Hold {
	if reason, waits := f.rec.Lock.Hold(p.File, f.now); waits {
		return []status.Hold{{Name: status.HoldLock, Reason: reason}}
	}
	return nil
}

// skew makes a client of the API server wait in mode auto if its minor version would be
// higher. A person may apply both.
func (f *facts) skew(pods []PodPlan) {
	at := slices.IndexFunc(pods, func(p PodPlan) bool { return p.Role == manifests.RoleAPIServer })
	if at < 0 || !f.policy.Auto {
		return
	}
	for n := range pods {
		client := &pods[n]
		if IsClient(client.Role) && !client.IsOwned() && client.Change != "" && f.isAhead(client, &pods[at]) {
			client.Waits = append(client.Waits, status.Hold{
				Name:   status.HoldControlPlane,
				Reason: client.Pod + " must not be newer than " + pods[at].Pod + ", which must be updated first",
			})
		}
	}
}

// isAhead reports whether the client's target has a higher minor version than the running API
// server.
func (f *facts) isAhead(client, server *PodPlan) bool {
	to, from := component(client), component(server)
	if to == nil || from == nil {
		return false
	}
	is, errIs := f.policy.RuleFor(from.Want.Ask.Repository).Scheme.Parse(from.Want.OnDisk.Tag)
	next, errNext := f.policy.RuleFor(to.Want.Ask.Repository).Scheme.Parse(to.Target.Tag)
	return errIs == nil && errNext == nil && tags.ChangeBetween(is, next) >= tags.Minor
}

// component returns the image of a control-plane pod's own program; nil if there is none.
func component(p *PodPlan) *ImagePlan {
	n := slices.IndexFunc(p.Images, func(i ImagePlan) bool {
		return i.Want.Image.Container == p.Role || status.LastPart(i.Want.Ask.Repository) == p.Role
	})
	if n < 0 && len(p.Images) == 1 {
		n = 0
	}
	if n < 0 {
		return nil
	}
	return &p.Images[n]
}

// IsClient reports whether pods of a role must not be newer than the API server.
func IsClient(role string) bool {
	return role == manifests.RoleControllerManager || role == manifests.RoleScheduler
}

// inOrder sorts restarts: by the configured order, then by name, the control plane last. If kube-apiserver changes its
// minor version, its clients follow it (Kubernetes' version skew policy).
func inOrder(p policy.Policy, applies []Step) {
	skews := slices.ContainsFunc(applies, func(s Step) bool {
		return s.Apply.Role == manifests.RoleAPIServer && policy.IsMinor(s.Apply.Change)
	})
	rank := func(s Step) int {
		switch role := s.Apply.Role; {
		case role == manifests.RoleAPIServer:
			return len(p.Order) + 1
		case IsClient(role) && skews:
			return len(p.Order) + 2
		case role == manifests.RoleEtcd:
			return len(p.Order) + 3
		}
		at := slices.IndexFunc(p.Order, func(pattern string) bool {
			ok, err := path.Match(pattern, s.File)
			return ok && err == nil // config validates the patterns
		})
		if at < 0 {
			at = len(p.Order)
		}
		return at
	}
	urgency := map[Verb]int{StepRollBack: 0, StepApply: 1, StepVerify: 2} // a health check changes nothing and can wait
	slices.SortStableFunc(applies, func(a, b Step) int {
		return cmp.Or(cmp.Compare(urgency[a.Do], urgency[b.Do]), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.File, b.File))
	})
}

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
	"github.com/kubic-project/image-update-agent/tags"
)

// addWaits adds what delays an apply: a freeze, and for mode auto the window, the control
// plane and an earlier failure.
func (pp podPlanner) addWaits(p *PodPlan) {
	if pp.now.Before(pp.policy.Freeze) {
		until := pp.policy.Freeze.UTC()
		p.Holds = append(p.Holds, status.Hold{
			Name: status.HoldFreeze, Reason: "nothing is applied before " + until.Format(time.RFC3339), Until: until,
		})
	}
	if !pp.policy.Auto || p.isHeld(status.HoldUnmanaged) {
		return
	}
	if open, change := pp.policy.IsWindowOpen(pp.now); !open {
		opens := change.UTC()
		p.Waits = append(p.Waits, status.Hold{
			Name: status.HoldWindow, Reason: "the next maintenance window opens at " + opens.Format(time.RFC3339), Until: opens,
		})
	}
	if follow.IsControlPlane(p.Pod) && !pp.policy.Lock.Covers(true) {
		p.Waits = append(
			p.Waits, status.Hold{Name: status.HoldControlPlane, Reason: p.Pod + " is applied node by node, by a person"},
		)
	}
	if h, waits := pp.rec.Lock.Hold(p.File, pp.now); waits {
		p.Waits = append(p.Waits, h)
	}
	if f, failed := pp.rec.Failed[p.File]; failed && f.Offer == p.ID {
		p.Waits = append(p.Waits, status.Hold{Name: status.HoldFailed, Reason: f.Reason})
	}
}

// skew makes a client of the API server wait in mode auto if its minor version would be
// higher. A person may apply both.
func (pp podPlanner) skew(pods []PodPlan) {
	at := slices.IndexFunc(pods, func(p PodPlan) bool { return p.Pod == follow.PodAPIServer })
	if at < 0 || !pp.policy.Auto {
		return
	}
	for n := range pods {
		client := &pods[n]
		if IsClient(client.Pod) && client.Change != "" && pp.isAhead(client, &pods[at]) {
			client.Waits = append(client.Waits, status.Hold{
				Name:   status.HoldControlPlane,
				Reason: client.Pod + " must not be newer than " + follow.PodAPIServer + ", which is applied first",
			})
		}
	}
}

// isAhead reports whether the client's target has a higher minor version than the running API
// server.
func (pp podPlanner) isAhead(client, server *PodPlan) bool {
	to, from := component(client), component(server)
	if to == nil || from == nil {
		return false
	}
	is, errIs := pp.policy.RuleFor(from.Want.Ask.Repository).Dialect.Parse(from.Want.OnDisk.Tag)
	next, errNext := pp.policy.RuleFor(to.Want.Ask.Repository).Dialect.Parse(to.Target.Tag)
	return errIs == nil && errNext == nil && tags.ChangeBetween(is, next) >= tags.Minor
}

// component returns the image that the control plane pod is named after; nil: none.
func component(p *PodPlan) *ImagePlan {
	n := slices.IndexFunc(p.Images, func(i ImagePlan) bool {
		return i.Want.Image.Container == p.Pod || status.LastPart(i.Want.Ask.Repository) == p.Pod
	})
	if n < 0 {
		return nil
	}
	return &p.Images[n]
}

// IsClient reports whether a pod of the control plane must not be newer than the API server.
func IsClient(pod string) bool {
	return pod == follow.PodControllerManager || pod == follow.PodScheduler
}

// inOrder sorts restarts: the configured order, then by name, then the control plane. Where
// kube-apiserver changes its minor version, its clients follow it (Kubernetes' version skew
// policy).
func inOrder(p policy.Policy, applies []Step) {
	skews := slices.ContainsFunc(applies, func(s Step) bool {
		return s.Apply.Pod == follow.PodAPIServer && policy.IsMinor(s.Apply.Change)
	})
	rank := func(s Step) int {
		switch pod := s.Apply.Pod; {
		case pod == follow.PodAPIServer:
			return len(p.Order) + 1
		case IsClient(pod) && skews:
			return len(p.Order) + 2
		case pod == follow.PodEtcd:
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
	urgency := map[Verb]int{StepRollBack: 0, StepApply: 1, StepProve: 2} // a proof changes nothing, and can wait
	slices.SortStableFunc(applies, func(a, b Step) int {
		return cmp.Or(cmp.Compare(urgency[a.Do], urgency[b.Do]), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.File, b.File))
	})
}

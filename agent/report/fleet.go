// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// lockStatus is the status of the lock; nil: none is configured, or the record is not known.
func (r *Report) lockStatus() *fleet.LockStatus {
	if !r.Loaded {
		return nil
	}
	return r.Record.LockStatus(r.Policy.Lock)
}

// lockFailures are the reasons of the state failed where the fleet waits for this node.
func (r *Report) lockFailures() []status.Reason {
	if r.Policy.Lock.Pods == "" {
		return nil
	}
	var out []status.Reason
	if l := r.Record.Lock; l.IsStuck() {
		out = append(out, status.Reason{
			Kind: status.KindUnlock, Host: l.Host, HTTPStatus: l.Status, Since: l.Since, RetryAt: l.RetryAt,
			Text: "the lock of the fleet is not given back, so that no other node follows: " + l.Error,
		})
	}
	for _, file := range r.Record.FailedUnderLock() {
		out = append(out, status.Reason{
			Kind: status.KindLock, PodManifest: file, Since: r.Record.Lock.Since,
			Text: file + ": the lock of the fleet is kept until the pod is proved, so that no other node follows",
		})
	}
	return out
}

// isAwaitedLock reports whether the plan holds a pod for the lock, so that the error of its last try says nothing more.
func isAwaitedLock(pl plan.Plan, file string) bool {
	return slices.ContainsFunc(pl.Pods, func(p plan.PodPlan) bool {
		return p.File == file && slices.ContainsFunc(p.Waits, func(h status.Hold) bool { return h.Name == status.HoldLock })
	})
}

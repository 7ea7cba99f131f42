// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// lockStatus returns the status of the lock; nil if none is configured, or if the record is not loaded.
func (r *Report) lockStatus() *fleet.LockStatus {
	if !r.Loaded {
		return nil
	}
	return r.Record.LockStatus(r.Policy.Lock)
}

// lockFailures returns the reasons of the state failed if the fleet waits for this node.
func (r *Report) lockFailures() []status.Reason {
	if r.Policy.Lock.Pods == "" {
		return nil
	}
	var out []status.Reason
	if l := r.Record.Lock; l.IsStuck() {
		out = append(out, status.Reason{
			Kind: status.KindUnlock, Host: l.Host, HTTPStatus: l.Status, Since: l.Since, RetryAt: l.RetryAt,
			Text: "the fleet lock cannot be released, so no other node can continue: " + l.Error,
		})
	}
	for _, file := range r.Record.FailedUnderLock() {
		out = append(out, status.Reason{
			Kind: status.KindLock, PodManifest: file, Since: r.Record.Lock.Since,
			Text: file + ": the node keeps the fleet lock until the pod is healthy, so no other node continues",
		})
	}
	return out
}

// isAwaitedLock reports whether the plan holds a pod for the lock, so that the error of the last attempt adds nothing.
func isAwaitedLock(pl plan.Plan, file string) bool {
	return slices.ContainsFunc(pl.Pods, func(p plan.PodPlan) bool {
		return p.File == file && slices.ContainsFunc(p.Waits, func(h status.Hold) bool { return h.Name == status.HoldLock })
	})
}

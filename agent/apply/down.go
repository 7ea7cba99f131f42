// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// whyDown returns why kubelet does not start the container that is down; "" if nobody knows. The end of a container
// says why it ended, not why no other follows. kubelet is asked first; it has a list only with its read-only port.
func (a *attempt) whyDown(ctx context.Context, o podObservation) string {
	if o.down == nil {
		return ""
	}
	p := a.step.Apply
	if a.Readiness != nil {
		waiting, err := a.Readiness.Waiting(ctx)
		if err != nil {
			a.Log.Debug("kubelet does not report why containers wait", "err", err)
		}
		inv := node.Inventory{Unstarted: waiting, NodeName: a.Policy.NodeName}
		for _, w := range inv.ByPod(p.Siblings).Unstarted(p.Namespace, p.Pod) {
			if w.Container == o.down.Container {
				return fmt.Sprintf("%s: %s: %s", w.Container, w.Reason, w.Message)
			}
		}
	}
	if err := a.lacksImage(ctx, *o.down); err != nil {
		return fmt.Sprintf("%s: %v", o.down.Container, err)
	}
	return ""
}

// lacksImage returns why kubelet cannot have the image of a container, by the calls of its image manager
// (EnsureImageExists): without a pull it starts what CRI lists, else what CRI can pull. nil: the image is not the
// cause.
func (a *attempt) lacksImage(ctx context.Context, e plan.Expectation) error {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	defer a.Progress.Heartbeat()()
	pinned := release.Key(e.Ref.Repository, e.Digest)
	switch {
	case e.Bound && !a.step.Apply.PullFirst:
		return a.asks(ctx, e)
	case e.OnNode || a.step.Apply.PullFirst:
		for _, name := range []string{e.Ref.String(), pinned} {
			if _, listed, err := a.Pods.Lists(ctx, name); err != nil || listed {
				return err
			}
		}
		return fmt.Errorf("CRI lists neither %s nor its digest %s", e.Ref, e.Digest)
	}
	_, err := a.Pods.Pull(ctx, e.Ref)
	if err != nil && ctx.Err() != nil { // it may be a large image
		return fmt.Errorf("pull %s: not done after %s", e.Ref, registryTimeout)
	}
	return err
}

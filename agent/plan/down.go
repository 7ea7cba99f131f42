// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Expected is a followed container that kubelet has to run.
type Expected struct {
	File, namespace, pod, Container string
	init                            bool
	once                            bool // kubelet does not restart it after success
	missing                         time.Time
}

// StartTimeout is how long a container may take to start, including the pull of its image.
const StartTimeout = 5 * time.Minute

func (ip imagePlanner) expects(v follow.PodView, w follow.Want) (Expected, bool) {
	is := node.IsContainer(w.Image) && w.Ask.Repository != "" && v.Disk != nil && w.OnDisk.Repository != ""
	return Expected{
		File: v.File, namespace: v.Was.Namespace, pod: v.Was.Name, Container: w.Image.Container,
		init: w.Image.Kind == manifests.KindInit, once: v.Was.Once,
		missing: ip.inv.Missing[record.GoodKey(v.File, w.Image.Container)],
	}, is
}

// Down returns why the container does not run; nil: it runs or has finished.
func (e Expected) Down(inv node.Inventory, names []string, now time.Time) *status.Down {
	c := node.FindContainer(inv.PodContainers(e.namespace, e.pod, names), e.Container)
	var out status.Down
	switch {
	case c == nil && e.init, c != nil && c.Running:
		return nil // kubelet removes finished init containers
	case c == nil, c.StartedAt.IsZero() && c.FinishedAt.IsZero():
		out = status.Down{Since: e.missing, Starting: true, Absent: true}
		if out.Since.IsZero() || out.Since.After(now) {
			out.Since = now
		}
	case c.ExitCode == 0 && (e.init || e.once):
		return nil
	default:
		out = status.Down{Since: c.FinishedAt, ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message}
	}
	for _, w := range inv.Unstarted {
		if w.Namespace == e.namespace && w.Container == e.Container && inv.Owner(w.Pod, names) == e.pod {
			out.Reason, out.Message = w.Reason, w.Message
		}
	}
	// kubelet's reasons before its first attempt.
	early := out.Reason == "" || out.Reason == "ContainerCreating" || out.Reason == "PodInitializing"
	out.Starting = out.Starting && early && now.Sub(out.Since) < StartTimeout
	return &out
}

// Downs returns the followed containers that do not run: those that may still start, or the
// others.
func (p *PodPlan) Downs(starting bool) []status.Reason {
	var out []status.Reason
	for _, i := range p.Images {
		if i.Down != nil && i.Down.Starting == starting {
			out = append(out, i.Down.AsReason(p.File, i.Want.Image.Container, i.Want.Ask.Repository))
		}
	}
	return out
}

// IsDown reports whether a followed container does not run.
func (p Plan) IsDown() bool {
	return slices.ContainsFunc(p.Pods, func(pod PodPlan) bool {
		return slices.ContainsFunc(pod.Images, func(i ImagePlan) bool { return i.Down != nil })
	})
}

// Missing returns since when followed containers are absent from CRI.
func (p Plan) Missing() map[string]time.Time {
	out := map[string]time.Time{}
	for _, pod := range p.Pods {
		for _, i := range pod.Images {
			if i.Down != nil && i.Down.Absent {
				out[record.GoodKey(pod.File, i.Want.Image.Container)] = i.Down.Since
			}
		}
	}
	return out
}

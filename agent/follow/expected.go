// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Expected is a followed container that kubelet must run.
type Expected struct {
	File, namespace, pod, Container string
	init                            bool
	once                            bool // kubelet does not restart it after success
	missing                         time.Time
}

// StartTimeout is how long a container may take to start, including the pull of its image.
const StartTimeout = 5 * time.Minute

// Expects returns the container of an image; false if kubelet does not have to run it.
func (v *PodView) Expects(w Want, inv node.Inventory) (Expected, bool) {
	is := node.IsContainer(w.Image) && w.Ask.Repository != "" && v.Disk != nil && w.OnDisk.Repository != ""
	return Expected{
		File: v.File, namespace: v.Was.Namespace, pod: v.Was.Name, Container: w.Image.Container,
		init: w.Image.Kind == manifests.KindInit, once: v.Was.Once,
		missing: inv.Missing[record.GoodKey(v.File, w.Image.Container)],
	}, is
}

// Find returns the container in CRI; nil if CRI does not show it.
func (e Expected) Find(pods node.ByPod) *node.Container {
	return node.FindContainer(pods.Containers(e.namespace, e.pod), e.Container)
}

// IsExplained reports whether kubelet says why it does not start the container.
func (e Expected) IsExplained(pods node.ByPod) bool {
	return slices.ContainsFunc(pods.Unstarted(e.namespace, e.pod), func(w node.Waiting) bool {
		return w.Container == e.Container
	})
}

// Down returns why the container does not run; nil if it runs or has finished.
func (e Expected) Down(pods node.ByPod, now time.Time) *status.Down {
	c := e.Find(pods)
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
	for _, w := range pods.Unstarted(e.namespace, e.pod) {
		if w.Container == e.Container {
			out.Reason, out.Message = w.Reason, w.Message
		}
	}
	// kubelet's reasons before its first attempt.
	early := out.Reason == "" || out.Reason == "ContainerCreating" || out.Reason == "PodInitializing"
	out.Starting = out.Starting && early && now.Sub(out.Since) < StartTimeout
	return &out
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/manifests"
)

// Down is that a followed container does not run.
type Down struct {
	// Since is when it ended; of one that was never started, when that was seen first.
	Since time.Time `json:"since"`
	// Starting: it was not started yet, and kubelet may be about to: it pulls, or
	// init containers run. It is believed for five minutes.
	Starting bool   `json:"starting"`
	ExitCode int32  `json:"exitCode"`
	Reason   string `json:"reason"`  // CRI's or kubelet's word: Error, OOMKilled, CrashLoopBackOff, ErrImagePull; or empty
	Message  string `json:"message"` // what they say beside it
	// Absent: CRI does not show it.
	Absent bool `json:"absent,omitempty"`
}

// String says why, in one sentence.
func (d Down) String() string {
	text := "does not run"
	switch {
	case d.Starting:
		text = "is not started yet"
	case d.Absent:
		text = "was not started"
	default:
		text += fmt.Sprintf(" (exit code %d)", d.ExitCode)
	}
	for _, more := range []string{d.Reason, d.Message} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

// Waiting is a container that kubelet does not start, and why.
type Waiting struct {
	Namespace string
	Pod       string // with the node's suffix, as CRI has it: velum-node1
	Container string
	Reason    string // ContainerCreating, ErrImagePull, CrashLoopBackOff ...
	Message   string
}

// expected is a followed container of a pod manifest that kubelet has.
type expected struct {
	file, namespace, pod, container string
	init                            bool
	once                            bool // one that has ended well is not started again
	missing                         time.Time
}

// startPatience is how long kubelet may take for a container that it has not started
// yet, as its image is pulled: then it counts as one that does not run.
const startPatience = 5 * time.Minute

func (d *decider) expects(v podView, w Want) (expected, bool) {
	is := isContainer(w.Image) && w.Ask.Repository != "" && v.disk != nil && w.OnDisk.Repository != ""
	return expected{
		file: v.file, namespace: v.was.Namespace, pod: v.was.Name, container: w.Image.Container,
		init: w.Image.Kind == manifests.KindInit, once: v.was.Once,
		missing: d.inv.Missing[goodKey(v.file, w.Image.Container)],
	}, is
}

// down tells why the container does not run; nil: it does, or has done its work.
func (e expected) down(inv Inventory, names []string, now time.Time) *Down {
	c := container(inv.podContainers(e.namespace, e.pod, names), e.container)
	var out Down
	switch {
	case c == nil && e.init, c != nil && c.Running:
		return nil // kubelet keeps an init container that has ended only so long
	case c == nil, c.StartedAt.IsZero() && c.FinishedAt.IsZero():
		out = Down{Since: e.missing, Starting: true, Absent: true}
		if out.Since.IsZero() || out.Since.After(now) {
			out.Since = now
		}
	case c.ExitCode == 0 && (e.init || e.once):
		return nil
	default:
		out = Down{Since: c.FinishedAt, ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message}
	}
	for _, w := range inv.Unstarted {
		if w.Namespace == e.namespace && w.Container == e.container && inv.owner(w.Pod, names) == e.pod {
			out.Reason, out.Message = w.Reason, w.Message
		}
	}
	// kubelet's words before it has tried anything.
	early := out.Reason == "" || out.Reason == "ContainerCreating" || out.Reason == "PodInitializing"
	out.Starting = out.Starting && early && now.Sub(out.Since) < startPatience
	return &out
}

// downs says which followed containers do not run, and why: those that kubelet may
// be about to start, or the others.
func (p *PodPlan) downs(starting bool) []Reason {
	var out []Reason
	for _, i := range p.Images {
		if i.Down != nil && i.Down.Starting == starting {
			out = append(out, i.Down.reason(p.File, i.Want.Image.Container, i.Want.Ask.Repository))
		}
	}
	return out
}

// reason is a container that does not run as a reason of the node's.
func (d *Down) reason(file, container, image string) Reason {
	return Reason{
		Kind: KindDown, PodManifest: file, Container: container, Image: image, Since: d.Since.UTC(),
		Text: fmt.Sprintf("%s: %s %s", file, container, d),
	}
}

// isDown reports whether any followed container does not run.
func (p Plan) isDown() bool {
	return slices.ContainsFunc(p.Pods, func(pod PodPlan) bool {
		return slices.ContainsFunc(pod.Images, func(i ImagePlan) bool { return i.Down != nil })
	})
}

// missing is since when containers are missed that CRI does not show.
func (p Plan) missing() map[string]time.Time {
	out := map[string]time.Time{}
	for _, pod := range p.Pods {
		for _, i := range pod.Images {
			if i.Down != nil && i.Down.Absent {
				out[goodKey(pod.File, i.Want.Image.Container)] = i.Down.Since
			}
		}
	}
	return out
}

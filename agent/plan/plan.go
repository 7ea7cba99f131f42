// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Plan is what a cycle does, and why not more.
type Plan struct {
	Pods    []PodPlan
	Tracked []ImagePlan // images of the configuration that no pod manifest names
	Steps   []Step
	Names   []string // of all static pods, to tell them apart
}

// byFile gives the pods by the names of their files.
func (p Plan) byFile() map[string]*PodPlan {
	pods := make(map[string]*PodPlan, len(p.Pods))
	for n := range p.Pods {
		pods[p.Pods[n].File] = &p.Pods[n]
	}
	return pods
}

// Stages reports whether a plan stages a release (repository@digest).
func (p Plan) Stages(release string) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Do == StepStage && s.Key() == release })
}

// PodPlan is one pod manifest: what is to become of it.
type PodPlan struct {
	File   string
	Pod    string
	Images []ImagePlan
	Change string // the largest of its images; "" for nothing to approve
	// ID identifies what the pod is to be: images and pod manifest; "" while that
	// is unclear. It stays the same while the pod is brought there.
	ID string
	// Offer is ID where there is something to approve; an approval names it.
	Offer string
	// Ready: all that the offer needs is staged. Holds may still stand against it.
	Ready bool
	// Wanted is the rendered pod manifest; nil where nothing is rendered.
	Wanted  []byte
	Waiting bool          // Wanted differs from the pod that runs and waits for approval
	Edits   []status.Edit // what its offer changes
	Left    []status.Left
	Holds   []status.Hold
	Waits   []status.Hold // what an apply without a person's yes waits for, beside Holds
	Err     error
}

// ImagePlan is one image of a pod manifest.
type ImagePlan struct {
	Want    follow.Want
	Offer   source.Offer
	Target  release.Release // what is to run; zero where unresolved or left alone
	Running status.Named    // what runs; zero where nothing does
	Config  digest.Digest   // its image id
	Change  string
	From    string // what runs, by its best name
	Staged  bool
	// StageFrom is when staging begins; zero: it need not wait.
	StageFrom time.Time
	Well      bool         // its container runs, or as an init container has ended well
	Down      *status.Down // it does not run; nil: it does, or is none that kubelet has to run
	// Expected is a container that kubelet has to run; else nil.
	Expected *Expected
	Flaps    bool          // it was restarted just now: it may run well, or not for long
	Holds    []status.Hold // where no pod manifest names it; else they are the pod's
	// NotAllowed are the newer tags that the configuration refuses, the highest for
	// each setting that would allow it.
	NotAllowed   []policy.Refusal
	RebuildsOnly *status.RebuildsOnly  // its tag is not understood; nil: it is
	Shortage     *policy.ShortageError // there is no room for its pull; nil: there is
}

// isSettled reports that the pod is what it is to be, and that all of it runs.
func (p *PodPlan) isSettled() bool { return p.ID != "" && p.Change == "" && p.allRun() }

// allRun reports that all of the pod runs.
func (p *PodPlan) allRun() bool {
	return !slices.ContainsFunc(p.Images, func(i ImagePlan) bool {
		return !i.Well && node.IsContainer(i.Want.Image) && i.Want.Ask.Repository != ""
	})
}

// Verb says what a step does.
type Verb string

// The steps, in the order in which a plan has them.
const (
	StepStage  Verb = "stage"  // pull, unpack, name and pin a release
	StepWrite  Verb = "write"  // write a pod manifest that restarts nothing
	StepKeep   Verb = "keep"   // store a rendered file until it is approved
	StepDrop   Verb = "drop"   // forget a stored file that is not wanted any more
	StepRemove Verb = "remove" // delete a pod manifest of ours that runs no pod
	StepPin    Verb = "pin"    // make the pins those that are needed
	StepPrune  Verb = "prune"  // remove old releases
	StepProve  Verb = "prove"  // show that a pod runs well what nobody has proved yet
	// StepRollBack makes a pod run the digests that its override names.
	StepRollBack Verb = "roll back"
	StepApply    Verb = "apply" // make a pod run what was approved
)

// Step is one thing to do. It can be repeated.
type Step struct {
	Do      Verb
	File    string           // pod manifest; empty for stage, pin and prune
	Release release.Release  // stage
	Was     node.PodFile     // write, remove, apply: what the plan was made from
	Data    []byte           // write, keep, apply: the new content; nil: unchanged
	Ours    bool             // Data was rendered from a template
	Needs   []string         // releases (repository@digest) that must have been staged
	Pins    []release.Pin    // pin
	Gone    []node.HeldImage // prune: records of images
	Apply   Apply            // apply
}

// Apply is what it takes to make a pod run something, and to prove that it does.
type Apply struct {
	Pod, Namespace string
	Siblings       []string // the names of all static pods, to tell them apart
	Offer          string
	Change         string
	Auto           bool // nobody has approved it
	Remove         bool
	Expect         []Expectation
	// Stop are the containers to stop, by CRI id. Aside: the pod manifest is set
	// aside instead, until its Sandboxes are down.
	Stop      []string
	Aside     bool
	Sandboxes []string
	PullFirst bool // IfNotPresent: CRI must fetch the floating tag first
	// Probes are the containers' readiness probes. HostNetwork: the pod has the
	// node's addresses. Grace is how long its containers may take to end.
	Probes      []manifests.Probe
	HostNetwork bool
	Grace       time.Duration
	// Back is what to return to if it does not come up; nil: nothing, for NoBack.
	Rollback   *record.Override
	NoRollback string
	// Ahead are the digests of all containers as they are to be, by place.
	Digests map[string]record.PinnedImage
}

// Expectation is what a container must run after an apply.
type Expectation struct {
	Container string
	Init      bool
	Ref       release.Reference // what kubelet will pull
	Name      string            // of the release, for people
	Digest    digest.Digest     // behind Ref
	Config    digest.Digest     // image id in CRI
	OnNode    bool              // kubelet starts it without a pull
	Old       string            // CRI id of the container before; it must be another one where Anew
	Anew      bool
}

// Key names what a step is about: the release, else the pod manifest.
func (s Step) Key() string {
	if s.Do == StepStage {
		return release.Key(s.Release.Repository, s.Release.Digest)
	}
	return s.File
}

// String is the step as a line for people.
func (s Step) String() string {
	switch s.Do {
	case StepStage:
		return fmt.Sprintf("stage %s:%s (%s)", s.Release.Repository, s.Release.Name(), s.Release.Digest)
	case StepPin:
		return fmt.Sprintf("pin %d images", len(s.Pins))
	case StepPrune:
		return "prune " + s.names()
	case StepApply:
		return fmt.Sprintf("apply %s (%s)", s.File, s.Apply.Change)
	default:
		return string(s.Do) + " " + s.File
	}
}

// names are the image records of a prune, a few of many.
func (s Step) names() string {
	const few = 4
	var names []string
	for _, h := range s.Gone[:min(few, len(s.Gone))] {
		names = append(names, h.Name)
	}
	if more := len(s.Gone) - few; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// left turns what rendering leaves alone into status.
func left(images []manifests.Image) []status.Left {
	var out []status.Left
	for _, i := range images {
		out = append(out, status.Left{Path: i.Path, Line: i.Line, Reference: outside.Text(i.Reference), Reason: i.Reason})
	}
	return out
}

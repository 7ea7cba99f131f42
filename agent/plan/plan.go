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
	Names   []string // of all static pods
	// BegunSets are the sets of which pods were restarted.
	BegunSets []BegunSet
	// PassedOver are the files of kubelet's directory of which kubelet makes no pod, nor does the agent.
	PassedOver []PassedOver
}

// PassedOver is a file that kubelet passes over.
type PassedOver struct {
	File string
	Why  error
}

// Stages reports whether the plan stages a release (repository@digest).
func (p Plan) Stages(release string) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Do == StepStage && s.Key() == release })
}

// PodPlan is the decision about one pod manifest.
type PodPlan struct {
	File      string
	Pod       string
	Role      string // in a control plane: manifests.RoleEtcd, ...; "" for none
	Images    []ImagePlan
	Change    string        // the largest change of its images; "": nothing to approve
	ID        string        // hash of the wanted images and pod manifest; "": unknown
	Offer     string        // ID, if there is something to approve
	Ready     bool          // all images of the offer are staged
	Wanted    []byte        // the rendered pod manifest; nil: nothing is rendered
	Waiting   bool          // Wanted needs a restart, and waits for approval
	Edits     []status.Edit // the changes of the offer
	Sets      []string      // of which its offer is a part
	Together  []string      // the other pod manifests of its sets that change, too: all are applied, or none
	passing   []status.Hold // those of Holds for whose end a begun set waits
	GoesOn    bool          // other pods of its set were applied: it follows without another approval
	Untouched []status.Untouched
	Holds     []status.Hold
	Waits     []status.Hold // what delays an apply without approval, beside Holds
	Err       error
}

// ImagePlan is one image of a pod manifest.
type ImagePlan struct {
	Want      follow.Want
	Offer     source.Offer
	Target    release.Release // the release to run; zero: unresolved or unmanaged
	Running   status.Named    // the release that runs; zero: none
	Config    digest.Digest   // image ID of Running
	Change    string
	From      string // name of the running release
	Staged    bool
	StageFrom time.Time        // when staging begins; zero: at once
	WasThere  bool             // its followed tag was seen, by the agent or by the node
	Well      bool             // its container runs, or its init container has succeeded
	Down      *status.Down     // why its container does not run; nil: it runs, or need not run
	Expected  *follow.Expected // its container, if kubelet has to run it
	Flaps     bool             // its container was just restarted
	Bound     bool             // the wanted pod manifest names the target's digest
	Holds     []status.Hold    // of an image that no pod manifest names
	// NotAllowed are newer tags that the configuration refuses: the highest for each setting.
	NotAllowed   []policy.Refusal
	RebuildsOnly *status.RebuildsOnly  // its tag cannot be parsed
	Shortage     *policy.ShortageError // disk space that its pull lacks
	// Contradiction is why mode auto leaves the target to a person: its name and its time of creation contradict
	// those of what runs. Empty: they do not, or a person has allowed it.
	Contradiction string
}

// isSettled reports whether the pod needs no change and all of it runs.
func (p *PodPlan) isSettled() bool { return p.ID != "" && p.Change == "" && p.allRun() }

// allRun reports whether all followed containers run.
func (p *PodPlan) allRun() bool {
	return !slices.ContainsFunc(p.Images, func(i ImagePlan) bool {
		return !i.Well && node.IsContainer(i.Want.Image) && i.Want.Ask.Repository != ""
	})
}

// Verb says what a step does.
type Verb string

// The steps, in the order in which a plan has them.
const (
	StepStage    Verb = "stage"     // pull, unpack, name and pin a release
	StepWrite    Verb = "write"     // write a pod manifest that restarts nothing
	StepKeep     Verb = "keep"      // store a rendered file until it is approved
	StepDrop     Verb = "drop"      // delete a stored file
	StepRemove   Verb = "remove"    // delete a pod manifest that runs no pod
	StepPin      Verb = "pin"       // set the pins
	StepPrune    Verb = "prune"     // remove old releases
	StepProve    Verb = "prove"     // prove that a pod runs well what it runs
	StepRollBack Verb = "roll back" // run the digests of an override
	StepApply    Verb = "apply"     // run what was approved
)

// Step is one thing to do. It can be repeated.
type Step struct {
	Do      Verb
	File    string          // pod manifest; empty for stage, pin and prune
	Release release.Release // stage
	Was     node.PodFile    // write, remove, apply: the file that was observed
	Data    []byte          // write, keep, apply: the new content; nil: unchanged
	Ours    bool            // Data was rendered from a template
	// Bound are the digests in Data that a catalog lists, by place.
	Bound map[string]digest.Digest
	Needs []string         // releases (repository@digest) that must be staged
	Pins  []release.Pin    // pin
	Gone  []node.HeldImage // prune: records of images
	Apply Apply            // apply
}

// Apply holds what a restart or a proof of a pod needs.
type Apply struct {
	Pod, Namespace string
	Role           string   // in a control plane: manifests.RoleEtcd, ...; "" for none
	Siblings       []string // names of all static pods
	Offer          string
	Change         string
	Auto           bool     // mode auto, not an approval
	Set            string   // of which all pods are applied, or none; "": none
	Together       []string // the other pod manifests of the set that change
	Remove         bool
	Expect         []Expectation
	Stop           []string // CRI IDs of the containers to stop, unless Aside
	Aside          bool     // set the pod manifest aside until Sandboxes are down
	Sandboxes      []string
	PullFirst      bool // IfNotPresent: CRI must fetch the floating tag first
	Probes         []manifests.Probe
	HostNetwork    bool
	Grace          time.Duration                 // how long its containers may take to end
	Rollback       *record.Override              // the rollback target; nil: none, see NoRollback
	NoRollback     string                        // why there is no rollback target
	Digests        map[string]record.PinnedImage // of all containers after the apply, by place
}

// Expectation is what a container must run after an apply.
type Expectation struct {
	Container string
	Init      bool
	Ref       release.Reference // what kubelet pulls
	Name      string            // of the release, for people
	Digest    digest.Digest     // behind Ref
	Config    digest.Digest     // image id in CRI
	OnNode    bool              // kubelet starts it without a pull
	Bound     bool              // the pod manifest names Digest beside the tag
	Old       string            // CRI ID of the current container
	Anew      bool              // the container must be a new one, not Old
}

// Key returns the release of a stage step, else the pod manifest.
func (s Step) Key() string {
	if s.Do == StepStage {
		return release.Key(s.Release.Repository, s.Release.Digest)
	}
	return s.File
}

// String describes the step for people.
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

// names lists the first image records of a prune.
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

// left describes the images that rendering leaves alone.
func untouched(images []manifests.Image) []status.Untouched {
	var out []status.Untouched
	for _, i := range images {
		out = append(out, status.Untouched{
			Path: i.Path, Line: i.Line, Reference: outside.Text(i.Reference), Reason: i.Reason,
		})
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

// Package plan makes the decisions. Decide plans a cycle, AtBoot the writes before kubelet starts, and Rollbacks a
// person's rollback: each from an inventory, offers, the record, the policy and the time. All are pure: they do no I/O,
// change none of their arguments and may run concurrently.
//
// A PodPlan is the decision about one pod manifest, with its holds. A Step is one idempotent action.
//
// Rules are applied in every plan, not in polls: after a stricter rule and a reload the old choice would still be
// offered. So an offer keeps candidates, allowed and refused ones. An older build is judged against what runs: lost
// records and restarts change nothing.
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
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Plan is the work of a cycle, with the reasons against further work.
type Plan struct {
	Pods    []PodPlan
	Tracked []ImagePlan // images of the configuration that no pod manifest names
	Steps   []Step
	Names   []string // of all static pods
	// BegunSets are the sets whose pods have begun to restart.
	BegunSets []BegunSet
	// PassedOver are the files of kubelet's directory that kubelet, and so the agent, ignores.
	PassedOver []PassedOver
}

// PassedOver is a file that kubelet ignores.
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
	Change    string        // the largest change of its images; "" if there is nothing to approve
	ID        string        // hash of the wanted images and pod manifest; "" if unknown
	Offer     string        // ID, if there is something to approve
	Ready     bool          // all images of the offer are staged
	Wanted    []byte        // the rendered pod manifest; nil if none is rendered
	Waiting   bool          // Wanted needs a restart, and waits for approval
	Edits     []status.Edit // the changes of the offer
	Sets      []string      // of which its offer is part
	Together  []string      // the other changed pod manifests of its sets: all are applied, or none
	passing   []status.Hold // the Holds whose end a begun set waits for
	GoesOn    bool          // other pods of its set were applied: it continues without another approval
	Untouched []status.Untouched
	Holds     []status.Hold
	Waits     []status.Hold // delays of an automatic apply, in addition to Holds
	Err       error
}

// ImagePlan is one image of a pod manifest.
type ImagePlan struct {
	Want      follow.Want
	Offer     source.Offer
	Target    release.Release // the release to run; zero if unresolved or unmanaged
	Running   status.Named    // the running release, with its name for people; zero if none
	Config    digest.Digest   // image ID of Running
	Change    string
	Staged    bool
	StageFrom time.Time        // start of staging; zero: at once
	WasThere  bool             // its followed tag is known to have existed
	Well      bool             // its container runs, or has succeeded and need not run again
	Down      *status.Down     // why its container does not run; nil if it runs, or need not run
	Expected  *follow.Expected // its container, if kubelet must run it
	Flaps     bool             // its container was just restarted
	Bound     bool             // the wanted pod manifest names the target's digest
	Brings    format.Brought   // what the catalog says of the change; zero: nothing
	Holds     []status.Hold    // for an image that no pod manifest names
	// NotAllowed are newer tags that the configuration refuses: the highest for each setting.
	NotAllowed   []policy.Refusal
	RebuildsOnly *status.RebuildsOnly  // its tag cannot be parsed
	Shortage     *policy.ShortageError // disk space that its pull lacks
	// Contradiction is why mode auto leaves the target to a person: its name and its creation time contradict those of
	// the running release. Empty if they agree, or if a person has allowed it.
	Contradiction string
}

// isSettled reports whether the pod needs no change and all its containers run.
func (p *PodPlan) isSettled() bool { return p.ID != "" && p.Change == "" && p.allRun() }

// allRun reports whether all followed containers run.
func (p *PodPlan) allRun() bool {
	return !slices.ContainsFunc(p.Images, func(i ImagePlan) bool {
		return !i.Well && node.IsContainer(i.Want.Image) && i.Want.Ask.Repository != ""
	})
}

// Verb is the action of a step.
type Verb string

// The verbs, in the order of a plan.
const (
	StepStage    Verb = "stage"     // pull, unpack, name and pin a release
	StepWrite    Verb = "write"     // write a pod manifest without a restart
	StepKeep     Verb = "keep"      // store a rendered file until it is approved
	StepDrop     Verb = "drop"      // delete a stored file
	StepRemove   Verb = "remove"    // delete the pod manifest of a pod that does not run
	StepPin      Verb = "pin"       // set the pins
	StepPrune    Verb = "prune"     // remove old releases
	StepVerify   Verb = "verify"    // run the health check of a running pod
	StepRollBack Verb = "roll back" // run the digests of an override
	StepApply    Verb = "apply"     // run an approved offer
)

// Step is one idempotent action.
type Step struct {
	Do      Verb
	File    string          // pod manifest; empty for stage, pin and prune
	Release release.Release // stage
	Lost    bool            // stage: the node has lost it, and nothing waits for it
	Was     node.PodFile    // write, remove, apply: the observed file
	Data    []byte          // write, keep, apply: the new content; nil: unchanged
	Ours    bool            // Data was rendered from a template
	// Bound are the digests from a catalog in Data, by place.
	Bound map[string]digest.Digest
	Needs []string         // releases (repository@digest) that must be staged
	Pins  []release.Pin    // pin
	Gone  []node.HeldImage // prune: records of images
	Apply Apply            // apply
}

// Apply holds the data for a restart or a health check of a pod.
type Apply struct {
	Pod, Namespace string
	Role           string   // in a control plane: manifests.RoleEtcd, ...; "" for none
	Siblings       []string // names of all static pods
	Offer          string
	Change         string
	Auto           bool     // by mode auto, without an approval
	Set            string   // whose pods are all applied, or none; "" if there is none
	Together       []string // the other changed pod manifests of the set
	Remove         bool
	Expect         []Expectation
	Stop           []string // CRI IDs of the containers to stop, unless Aside
	Aside          bool     // set the pod manifest aside until Sandboxes are down
	Sandboxes      []string
	PullFirst      bool // IfNotPresent: CRI must fetch the floating tag first
	Probes         []manifests.Probe
	HostNetwork    bool
	Once, Never    bool // see manifests.Pod
	// Broken are the containers that did not run before the apply: it did not break them. Expect has only those of them
	// that an apply changes.
	Broken     []string
	Began      *record.Approval              // to be recorded before the restart; nil: the offer is approved already
	Grace      time.Duration                 // grace period of its containers
	Rollback   *record.Override              // the rollback target; nil if there is none, see NoRollback
	NoRollback string                        // why there is no rollback target
	Digests    map[string]record.PinnedImage // of all containers after the apply, by place
}

// Expectation is the expected state of a container after an apply.
type Expectation struct {
	Container string
	Init      bool
	Ref       release.Reference // the reference that kubelet pulls
	Name      string            // of the release, for people
	Digest    digest.Digest     // for Ref
	Config    digest.Digest     // image id in CRI
	OnNode    bool              // kubelet starts it without a pull
	Bound     bool              // the pod manifest has Digest next to the tag
	Old       string            // CRI ID of the current container
	Anew      bool              // the container must be new, not Old
	Brings    format.Brought    // by the change to Digest
}

// Key returns the release of a stage step, else the pod manifest.
func (s Step) Key() string {
	if s.Do == StepStage {
		return release.Key(s.Release.Repository, s.Release.Digest)
	}
	return s.File
}

// Count is the number of images of a step that pins or prunes.
func (s Step) Count() int { return len(s.Pins) + len(s.Gone) }

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

// untouched describes the images that rendering leaves unchanged.
func untouched(images []manifests.Image) []status.Untouched {
	var out []status.Untouched
	for _, i := range images {
		out = append(out, status.Untouched{
			Path: i.Path, Line: i.Line, Reference: outside.Text(i.Reference), Reason: i.Reason,
			Text: manifests.ReasonText(i.Reason),
		})
	}
	return out
}

// Standing is the outcome of an apply of the pod at this moment. Status, plan and apply share it.
type Standing struct {
	// Result is nothing, held or failed; empty if the offer only waits for an approval.
	Result    status.Result
	Reason    string
	Hold      string
	ErrorKind status.ErrorKind
	Staged    bool // all images are on the node
	Ours      bool // the agent manages the pod manifest
}

// Standing returns the outcome of an apply of the pod at this moment.
func (p *PodPlan) Standing() Standing {
	at := Standing{Staged: true, Ours: !p.IsUnmanaged()}
	switch {
	case p.Err != nil:
		at.Result, at.Reason, at.ErrorKind = status.ResultFailed, p.Err.Error(), status.ErrorKindOf(p.Err)
	case p.BlocksOffer() || p.Change != "" && len(p.Holds) > 0:
		at.Result, at.Hold, at.Reason = status.ResultHeld, p.Holds[0].Name, p.Holds[0].Name+": "+p.Holds[0].Reason
	case p.Change == "":
		at.Result = status.ResultNothing
	case !p.Ready:
		at.Result, at.Reason, at.Staged = status.ResultHeld, "not staged yet", false
	}
	return at
}

// Images calls f with each image of the pods and of the configuration; file is its pod
// manifest.
func (p Plan) Images(f func(file string, i ImagePlan)) {
	for _, pod := range p.Pods {
		for _, i := range pod.Images {
			if i.Want.Ask.Repository != "" {
				f(pod.File, i)
			}
		}
	}
	for _, i := range p.Tracked {
		f("", i)
	}
}

// NotAllowed returns the newer tags that the configuration refuses, sorted and without
// duplicates.
func (p Plan) NotAllowed() []status.NotAllowed {
	out := []status.NotAllowed{}
	p.Images(func(_ string, i ImagePlan) {
		for _, no := range i.NotAllowed {
			out = append(out, status.NotAllowed{Image: i.Offer.Repository, Tag: no.Tag, Rule: no.Rule, Key: no.Key})
		}
	})
	slices.SortFunc(out, func(x, y status.NotAllowed) int {
		return strings.Compare(x.Image+" "+x.Key+" "+x.Tag, y.Image+" "+y.Key+" "+y.Tag)
	})
	return slices.Compact(out)
}

// Downs returns the followed containers that do not run: the ones that may still start, or the others.
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
	p.Images(func(file string, i ImagePlan) {
		if i.Down != nil && i.Down.Absent {
			out[record.GoodKey(file, i.Want.Image.Container)] = i.Down.Since
		}
	})
	return out
}

// InUse returns the parts of the record that the plan needs; the rest may be removed.
func InUse(plan Plan, offers map[release.Question]source.Offer, inv node.Inventory, now time.Time) record.InUse {
	use := record.InUse{
		Pods: map[string]record.PodInUse{}, Wrote: map[string]bool{}, Questions: map[string]bool{},
		Releases: map[string]bool{}, Newest: map[string]time.Time{},
	}
	if inv.Catalog.Catalog != "" {
		use.Questions[inv.Catalog.Catalog] = true
	}
	for _, f := range inv.PodManifests {
		use.Wrote[f.Name] = true
	}
	for q, o := range offers {
		use.Questions[q.String()], use.Questions[q.Repository] = true, true
		for _, rel := range o.Known() {
			use.Releases[release.Key(rel.Repository, rel.Digest)] = true
			if policy.IsPlausibleCreation(rel.Created, now) && rel.Created.After(use.Newest[rel.Repository]) {
				use.Newest[rel.Repository] = rel.Created
			}
		}
	}
	onDisk := node.ByName(inv.PodManifests)
	for _, p := range plan.Pods {
		pod := podInUse(&p, onDisk[p.File])
		for _, i := range pod.Images {
			use.Releases[release.Key(i.Repository, i.Running)] = true
		}
		use.Pods[p.File] = pod
	}
	return use
}

func podInUse(p *PodPlan, disk *node.PodFile) record.PodInUse {
	use := record.PodInUse{
		Broken: p.Err != nil, Unclear: p.Err != nil || p.BlocksOffer(), Held: p.isHeld(status.HoldRequested),
		ID: p.ID, Offer: p.Offer, AllRun: p.allRun(), Settled: p.isSettled(), Contains: map[string]bool{},
		AwaitsLock: len(p.Holds) == 0 && len(p.Waits) == 1 && p.Waits[0].Name == status.HoldLock,
	}
	for _, i := range p.Images {
		use.Contains[i.Want.Image.Container] = true
		use.Images = append(use.Images, record.ImageInUse{
			Container: i.Want.Image.Container, Place: node.PlaceOf(i.Want.Image), IsContainer: node.IsContainer(i.Want.Image),
			Repository: i.Want.Ask.Repository, Running: i.Running.Digest, Config: i.Config, Target: i.Target.Digest,
			RunsWell: i.Well, Restarts: i.Flaps,
		})
	}
	if disk == nil {
		return use
	}
	text := string(disk.Content())
	use.OnDisk = &text
	pod, err := disk.Parse()
	if err != nil {
		use.Contains = nil
		return use
	}
	for _, img := range pod.Images {
		use.Contains[img.Container] = true // also of a container that only the file on disk has
	}
	return use
}

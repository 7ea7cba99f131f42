// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// StatusSchemaVersion is the version of Status as JSON. It grows only when a
// field changes its meaning; new fields do not count.
const StatusSchemaVersion = 1

// State is the node's state in one word.
type State string

// The states in order of precedence: the first that holds is the node's.
const (
	StateApplying  State = "applying"  // a pod is being brought to its offer
	StateFailed    State = "failed"    // something of ours did not work; a person should look
	StateHeld      State = "held"      // there is something to do, and a named reason not to
	StateStale     State = "stale"     // a source does not answer: what we know is old
	StateUnchecked State = "unchecked" // no source was asked yet for something that is followed
	StateStaged    State = "staged"    // offers are staged and wait for approval
	StateCurrent   State = "current"   // nothing to do
)

// Status is the whole answer to "why is (nothing) happening?". It is what the
// status socket serves and what the status file holds.
type Status struct {
	SchemaVersion int        `json:"schemaVersion"`
	Version       string     `json:"version"` // of the agent
	State         State      `json:"state"`
	Reason        string     `json:"reason"` // one sentence for people, made from Reasons
	Reasons       []Reason   `json:"reasons"`
	Since         time.Time  `json:"since"` // of State
	Written       time.Time  `json:"written"`
	LastCheck     *time.Time `json:"lastCheck"`
	NextCheck     *time.Time `json:"nextCheck"`          // null: polling is off
	Progress      *Progress  `json:"progress,omitempty"` // what was heard last
	Pulls         []Progress `json:"pulls,omitempty"`    // that run side by side
	// Interrupted is a poll or a staging that goes on after a person's request.
	Interrupted  *Interruption  `json:"interrupted,omitempty"`
	Budget       *BudgetStatus  `json:"budget"` // null: nothing of it is spent, or there is none
	Sources      []SourceStatus `json:"sources"`
	Images       []ImageStatus  `json:"images"`
	PodManifests []PodStatus    `json:"podManifests"`
	// Updates are staged and wait for approval: what the admin's UI is told.
	Updates []AnnouncedUpdate `json:"updates"`
	// Dropped is what could not be kept, and was left out.
	Dropped []Dropped `json:"dropped,omitempty"`
	// NotAllowed is what is newer, and what the configuration does not allow.
	NotAllowed []NotAllowed `json:"notAllowed"`
}

// Is reports whether a reason of the kind speaks for the state.
func (s Status) Is(kind Kind) bool {
	return slices.ContainsFunc(s.Reasons, func(r Reason) bool { return r.Kind == kind })
}

// BudgetStatus is what is left of the hour's requests to registries.
type BudgetStatus struct {
	PerHour int `json:"perHour"`
	Left    int `json:"left"`
}

// SourceStatus is one repository's source.
type SourceStatus struct {
	Repository  string        `json:"repository"`
	Host        string        `json:"host"`
	Mirror      bool          `json:"mirror"`
	Insecure    bool          `json:"insecure"`
	LastSuccess *time.Time    `json:"lastSuccess"`
	Failures    int           `json:"failures"`
	Error       string        `json:"error"`
	Reason      string        `json:"reason"`     // Error without the repository
	Cause       release.Cause `json:"cause"`      // of Error; "": there is none
	HTTPStatus  int           `json:"httpStatus"` // 0: the host gave none
	RetryAt     *time.Time    `json:"retryAt"`
}

// Named is a digest with the best name there is for it.
type Named struct {
	Tag    string        `json:"tag"` // long tag, else floating tag, else ""
	Digest digest.Digest `json:"digest"`
}

// ImageStatus is one image of one container.
type ImageStatus struct {
	Image       string     `json:"image"` // repository
	Container   string     `json:"container"`
	PodManifest string     `json:"podManifest"`
	Follow      string     `json:"follow"` // floating tag
	Host        string     `json:"host"`   // that answered for it
	Mirror      bool       `json:"mirror"`
	Running     *Named     `json:"running"`
	Down        *Down      `json:"down"` // null: it runs, or has done its work
	LastGood    *Named     `json:"lastGood"`
	Offered     *Named     `json:"offered"`
	Change      string     `json:"change"` // "" where nothing is offered
	Created     *time.Time `json:"created"`
	// of what is offered, compressed, in bytes; 0: nothing is, or it is not known
	Size      int64     `json:"size"`
	Staged    bool      `json:"staged"`
	StageFrom time.Time `json:"stageFrom,omitzero"` // of what waits to be staged
	// of what could not be staged: when it is tried again; else null
	RetryAt  *time.Time       `json:"retryAt"`
	SignedBy string           `json:"signedBy"` // the key's fingerprint; "": not looked for, or not signed
	Adopted  bool             `json:"adopted"`
	Holds    []Hold           `json:"holds"`
	Refused  []policy.Refusal `json:"refused"` // what is not offered, and by which rule
	// NotAllowed are those that are newer and that the configuration refuses, the
	// highest for each setting that would allow it.
	NotAllowed   []policy.Refusal      `json:"notAllowed"`
	RebuildsOnly *RebuildsOnly         `json:"rebuildsOnly"` // null: the followed tag is understood
	Shortage     *policy.ShortageError `json:"shortage"`     // null: there is room for its pull
	Notes        []string              `json:"notes"`
	Error        string                `json:"error"`
	ErrorKind    ErrorKind             `json:"errorKind"`
}

// PodStatus is one pod manifest.
type PodStatus struct {
	PodManifest string    `json:"podManifest"` // file name
	Pod         string    `json:"pod"`
	Change      string    `json:"change"`  // the largest of its images
	Waiting     bool      `json:"waiting"` // a rendered file waits for approval
	Edits       []Edit    `json:"edits"`   // what an apply changes
	Left        []Left    `json:"left"`    // references that are not edited, and why
	Holds       []Hold    `json:"holds"`
	Error       string    `json:"error"`
	ErrorKind   ErrorKind `json:"errorKind"`
	// RolledBack: the pod was brought back to what ran well before; null: it was not, or
	// has got a newer release since.
	RolledBack *RolledBack `json:"rolledBack"`
}

// RolledBack is what a pod was brought back from, until a newer release is applied.
type RolledBack struct {
	At     time.Time `json:"at"`
	ByHand bool      `json:"byHand"`
	Left   []string  `json:"left"` // the releases that are not offered any more
	Runs   []string  `json:"runs"` // the releases that stand in their place
	Reason string    `json:"reason"`
}

// Left is an image reference that rendering leaves alone.
type Left struct {
	Path      string `json:"path"`
	Line      int    `json:"line"`
	Reference string `json:"reference"`
	Reason    string `json:"reason"`
}

// Interruption is a poll, a staging or a proof that a request of a person has interrupted.
type Interruption struct {
	Work string    `json:"work"` // poll, staging, proof, or cycle: between two steps of one
	For  string    `json:"for"`  // apply, rollback, hold, unhold or reload
	At   time.Time `json:"at"`
}

// Sentence is a status in one line, its times as in all texts of a status.
func Sentence(s Status) string {
	text := string(s.State) + ": " + s.Reason
	if s.NextCheck != nil {
		text += "; next check " + s.NextCheck.UTC().Format(time.RFC3339)
	}
	return text
}

// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// StatusSchemaVersion is the version of Status as JSON. It changes only with the meaning of a
// field.
const StatusSchemaVersion = 1

// State is the node's state in one word.
type State string

// The states, by precedence: the first that applies is the node's.
const (
	StateApplying  State = "applying"  // a pod is being restarted
	StateFailed    State = "failed"    // something failed; a person has to act
	StateHeld      State = "held"      // there is something to do, and a hold
	StateStale     State = "stale"     // a source does not answer: offers are old
	StateUnchecked State = "unchecked" // no source was asked yet for a followed image
	StateStaged    State = "staged"    // offers are staged and wait for approval
	StateCurrent   State = "current"   // nothing to do
)

// Status is the status document, on the status socket and in the status file.
type Status struct {
	SchemaVersion int      `json:"schemaVersion"`
	Version       string   `json:"version" dbus:"Version"` // of the agent
	State         State    `json:"state" dbus:"State"`
	Reason        string   `json:"reason" dbus:"Reason,long"` // one sentence for people, made from Reasons
	Reasons       []Reason `json:"reasons"`
	// Since: of State.
	Since     time.Time  `json:"since" metric:"state_since_timestamp_seconds" help:"Since when the node is in its state."`
	Written   time.Time  `json:"written"`
	LastCheck *time.Time `json:"lastCheck" dbus:"LastCheck" metric:"last_check_timestamp_seconds" help:"When the sources were last asked."`
	// NextCheck: null: polling is off.
	NextCheck *time.Time `json:"nextCheck" dbus:"NextCheck" metric:"next_check_timestamp_seconds" help:"When they are asked next; not there while polling is off."`
	// Activity: what the daemon does now.
	Activity Activity   `json:"activity" dbus:"Activity"`
	Progress *Progress  `json:"progress,omitempty"` // the last report
	Pulls    []Progress `json:"pulls,omitempty"`    // running now
	// Interrupted is work that continues after a person's request.
	Interrupted *Interruption  `json:"interrupted,omitempty"`
	Budget      *BudgetStatus  `json:"budget"` // null: it is full, or there is none
	Sources     []SourceStatus `json:"sources" dbus:"Sources"`
	// Catalog is what the node knows of its catalog; absent: none is configured.
	Catalog *catalog.Status `json:"catalog,omitempty"`
	// OwnHost is the node's own host; absent: no hosts.toml names it.
	OwnHost *ownhost.Status `json:"ownHost,omitempty"`
	// Lock is the lock of the fleet; absent: none is configured.
	Lock         *fleet.LockStatus `json:"lock,omitempty"`
	Images       []ImageStatus     `json:"images"`
	PodManifests []PodStatus       `json:"podManifests"`
	// Updates are staged and wait for approval.
	Updates []AnnouncedUpdate `json:"updates" dbus:"Updates"`
	// Dropped are entries that could not be written.
	Dropped    []Dropped    `json:"dropped,omitempty"`
	NotAllowed []NotAllowed `json:"notAllowed" dbus:"NotAllowed"`
	// Failures are the reasons of the state failed, one for each.
	Failures []Failure `json:"failures" dbus:"Failures"`
	// StandingHolds are there also while nothing is offered.
	StandingHolds []StandingHold `json:"standingHolds" dbus:"StandingHolds"`
	// History is what became of the last applies, adoptions and rollbacks, the newest first.
	History []HistoryEntry `json:"history" dbus:"History"`
}

// HasReason reports whether the state has a reason of the kind.
func (s Status) HasReason(kind Kind) bool {
	return slices.ContainsFunc(s.Reasons, func(r Reason) bool { return r.Kind == kind })
}

// BeforeBoot is a status that was written before the node booted: what ran then says nothing about what runs now.
func (s Status) BeforeBoot() Status {
	s.State, s.Since, s.Progress, s.Pulls, s.Interrupted = StateUnchecked, s.Written, nil, nil, nil
	s.Reasons = []Reason{{
		Kind: KindStarting, Text: "the node has booted since this status was written, and no daemon has observed it",
	}}
	s.Reason, s.Failures = SentenceOf(s.Reasons), []Failure{}
	s.Images = slices.Clone(s.Images)
	for n := range s.Images {
		s.Images[n].Running, s.Images[n].Down = nil, nil
	}
	return s
}

// BudgetStatus is the budget of requests to registries.
type BudgetStatus struct {
	PerHour   int `json:"perHour"`
	Remaining int `json:"remaining"`
}

// SourceStatus is one repository's source.
type SourceStatus struct {
	Repository string `json:"repository" dbus:"repository" label:"repository"`
	Kind       string `json:"kind,omitempty"` // "catalog": its releases are those of the catalog
	Host       string `json:"host" dbus:"host"`
	Mirror     bool   `json:"mirror" dbus:"mirror"`
	Insecure   bool   `json:"insecure"`
	// HostsIgnored is the directory of hosts.toml that containerd ignores, and why; absent: none.
	HostsIgnored string        `json:"hostsIgnored,omitempty"`
	LastSuccess  *time.Time    `json:"lastSuccess" dbus:"lastSuccess" metric:"source_last_success_timestamp_seconds" help:"When a repository was last answered for; not there before the first time."`
	Failures     int           `json:"failures" dbus:"failures" metric:"source_failures" help:"Polls of a repository that failed in a row."`
	Error        string        `json:"error" dbus:"error"`
	Reason       string        `json:"reason"`             // Error without the repository
	Cause        release.Cause `json:"cause" dbus:"cause"` // of Error; "": there is none
	HTTPStatus   int           `json:"httpStatus"`         // 0: the host gave none
	RetryAt      *time.Time    `json:"retryAt" dbus:"retryAt"`
}

// Named is a digest with its best name.
type Named struct {
	Tag    string        `json:"tag"` // long tag, else floating tag, else ""
	Digest digest.Digest `json:"digest"`
}

// ImageStatus is one image of one container.
type ImageStatus struct {
	Image       string `json:"image" dbus:"image"` // repository
	Container   string `json:"container" dbus:"container" label:"container"`
	PodManifest string `json:"podManifest" dbus:"podManifest" label:"pod_manifest"`
	Follow      string `json:"follow" dbus:"follow"` // floating tag
	Host        string `json:"host"`                 // that answered
	Mirror      bool   `json:"mirror"`
	Running     *Named `json:"running" dbus:"running"`
	Down        *Down  `json:"down"` // null: it runs, or has completed
	LastGood    *Named `json:"lastGood"`
	// Previous: to which a rollback returns; null: it leaves the image as it is.
	Previous *Named     `json:"previous" dbus:"previous"`
	Offered  *Named     `json:"offered" dbus:"offered"`
	Change   string     `json:"change" dbus:"change"` // "": nothing is offered
	Created  *time.Time `json:"created"`
	// Size is the compressed size of the offer in bytes; 0: not known.
	Size      int64     `json:"size"`
	Staged    bool      `json:"staged" dbus:"staged"`
	StageFrom time.Time `json:"stageFrom,omitzero"` // if it is later
	// RetryAt is when a failed staging is tried again.
	RetryAt  *time.Time       `json:"retryAt"`
	SignedBy string           `json:"signedBy"` // the key's fingerprint; "": not verified, or not signed
	Adopted  bool             `json:"adopted" dbus:"adopted"`
	Holds    []Hold           `json:"holds"`
	Refused  []policy.Refusal `json:"refused"` // newer tags that are not offered
	// NotAllowed are newer tags that the configuration refuses, the highest for each
	// setting that would allow it.
	NotAllowed   []policy.Refusal      `json:"notAllowed"`
	RebuildsOnly *RebuildsOnly         `json:"rebuildsOnly"` // null: the followed tag can be parsed
	Shortage     *policy.ShortageError `json:"shortage"`     // null: there is enough space
	// Withdrawn: the catalog has withdrawn what runs.
	Withdrawn *catalog.Withdrawal `json:"withdrawn,omitempty"`
	// RolloutAt is when this node applies the offer automatically; absent: the release is not
	// rolled out by time.
	RolloutAt time.Time `json:"rolloutAt,omitzero"`
	// Set is the name of the set that the offer belongs to.
	Set string `json:"set,omitempty"`
	// Bound: the pod manifest names the digest that the catalog lists.
	Bound     bool      `json:"bound,omitempty"`
	Notes     []string  `json:"notes"`
	Error     string    `json:"error" dbus:"error"`
	ErrorKind ErrorKind `json:"errorKind" dbus:"errorKind"`
}

// PodStatus is one pod manifest.
type PodStatus struct {
	PodManifest string      `json:"podManifest" label:"pod_manifest"` // file name
	Pod         string      `json:"pod"`
	Change      string      `json:"change"`    // the largest of its images
	Waiting     bool        `json:"waiting"`   // a rendered file waits for approval
	Edits       []Edit      `json:"edits"`     // what an apply changes
	Untouched   []Untouched `json:"untouched"` // references that are not edited, and why
	Holds       []Hold      `json:"holds"`
	Error       string      `json:"error"`
	ErrorKind   ErrorKind   `json:"errorKind"`
	// RolledBack: the pod was rolled back, and has no newer release yet; null: it was not.
	RolledBack *RolledBack `json:"rolledBack"`
	// CanRollBack: a rollback has something to do.
	CanRollBack bool `json:"canRollBack"`
}

// RolledBack describes a rollback, until a newer release is applied.
type RolledBack struct {
	At     time.Time `json:"at"`
	ByHand bool      `json:"byHand"`
	Denied []string  `json:"denied"` // the denied releases
	Runs   []string  `json:"runs"`   // the releases that run instead
	Reason string    `json:"reason"`
}

// Untouched is an image reference that rendering does not change.
type Untouched struct {
	Path      string `json:"path"`
	Line      int    `json:"line"`
	Reference string `json:"reference"`
	Reason    string `json:"reason"`
}

// Interruption is work that a person's request interrupted.
type Interruption struct {
	Work string    `json:"work"` // poll, staging, proof, or cycle (between two steps)
	For  string    `json:"for"`  // apply, rollback, hold, unhold or reload
	At   time.Time `json:"at"`
}

// Sentence returns the status in one line.
func Sentence(s Status) string {
	text := string(s.State) + ": " + s.Reason
	if s.NextCheck != nil {
		text += "; next check " + s.NextCheck.UTC().Format(time.RFC3339)
	}
	return text
}

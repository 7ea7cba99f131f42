// SPDX-License-Identifier: Apache-2.0

// Package status holds the status document of a node for programs and people. Each state, hold, reason and error has a
// kind with typed fields; this package and the pages for people make sentences from them, and no program parses these.
// A Reporter reports the progress of long work, and its heartbeats.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/tags"
)

// StatusSchemaVersion is the version of Status as JSON. It changes only with the meaning of a
// field.
const StatusSchemaVersion = 1

// Status is the status document, on the status socket and in the status file.
type Status struct {
	SchemaVersion int      `json:"schemaVersion"`
	Version       string   `json:"version" dbus:"Version"` // of the agent
	State         State    `json:"state" dbus:"State"`
	Reason        string   `json:"reason" dbus:"Reason,long"` // one sentence for people, made from Reasons
	Reasons       []Reason `json:"reasons"`
	// Since: of State.
	Since     time.Time  `json:"since" metric:"state_since_timestamp_seconds" help:"Since when the node has been in its state."`
	Written   time.Time  `json:"written"`
	LastCheck *time.Time `json:"lastCheck" dbus:"LastCheck" metric:"last_check_timestamp_seconds" help:"When the sources were last asked, with or without an answer."`
	// NextCheck: null if polling is off.
	NextCheck *time.Time `json:"nextCheck" dbus:"NextCheck" metric:"next_check_timestamp_seconds" help:"When the sources are asked next; absent while polling is off."`
	// Auto is absent if a person approves each update.
	Auto *AutoStatus `json:"auto,omitempty"`
	// Activity: the current work of the daemon.
	Activity Activity   `json:"activity" dbus:"Activity"`
	Progress *Progress  `json:"progress,omitempty"` // the last report
	Pulls    []Progress `json:"pulls,omitempty"`    // running now
	// Interrupted is work that continues after a person's request.
	Interrupted *Interruption  `json:"interrupted,omitempty"`
	Budget      *BudgetStatus  `json:"budget"` // null if it is full, or if there is none
	Sources     []SourceStatus `json:"sources" dbus:"Sources"`
	// Catalog is the node's catalog; absent if none is configured.
	Catalog *catalog.Status `json:"catalog,omitempty"`
	// LocalRegistry is the node's local registry; absent if no hosts.toml names it.
	LocalRegistry *localregistry.Status `json:"localRegistry,omitempty"`
	// Lock is the fleet lock; absent if none is configured.
	Lock         *fleet.LockStatus `json:"lock,omitempty"`
	Images       []ImageStatus     `json:"images"`
	PodManifests []PodStatus       `json:"podManifests"`
	// Releases are those that run, are offered, or have failed on this node.
	Releases []ReleaseStatus `json:"releases"`
	// Updates are staged and wait for approval.
	Updates []AnnouncedUpdate `json:"updates" dbus:"Updates"`
	// Dropped are entries that could not be written.
	Dropped    []Dropped    `json:"dropped,omitempty"`
	NotAllowed []NotAllowed `json:"notAllowed" dbus:"NotAllowed"`
	// Failures are the reasons of the state failed, one for each.
	Failures []Failure `json:"failures" dbus:"Failures"`
	// StandingHolds are listed even if there are no offers.
	StandingHolds []StandingHold `json:"standingHolds" dbus:"StandingHolds"`
	// History has the last applies, pickups and rollbacks, the newest first.
	History []HistoryEntry `json:"history" dbus:"History"`
}

// HasReason reports whether the state has a reason of the kind.
func (s Status) HasReason(kind Kind) bool {
	return slices.ContainsFunc(s.Reasons, func(r Reason) bool { return r.Kind == kind })
}

// BeforeBoot marks a status written before the node booted: its running releases may not run now.
func (s Status) BeforeBoot() Status {
	s.State, s.Since, s.Progress, s.Pulls, s.Interrupted = StateUnchecked, s.Written, nil, nil, nil
	s.Reasons = []Reason{{
		Kind: KindStarting, Text: "the node was booted after this status was written, and the daemon has not run since",
	}}
	s.Reason, s.Failures = SentenceOf(s.Reasons), []Failure{}
	s.Images = slices.Clone(s.Images)
	for n := range s.Images {
		s.Images[n].Running, s.Images[n].Down = nil, nil
	}
	return s
}

// AutoStatus is whether automatic applies may begin now, by the maintenance windows.
type AutoStatus struct {
	Open      bool       `json:"open"`
	ChangesAt *time.Time `json:"changesAt"` // when Open changes; null: never
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
	// HostsIgnored is the hosts.toml, or its directory, that containerd ignores, with the reason; absent if there is none.
	HostsIgnored string `json:"hostsIgnored,omitempty"`
	// Skipped is the failure of a host before the one that answered; absent if there is none.
	Skipped     string        `json:"skipped,omitempty"`
	LastSuccess *time.Time    `json:"lastSuccess" dbus:"lastSuccess" metric:"source_last_success_timestamp_seconds" help:"When a source last answered for the repository; absent before the first answer."`
	Failures    int           `json:"failures" dbus:"failures" metric:"source_failures" help:"Failed polls of the repository in a row."`
	Error       string        `json:"error" dbus:"error"`
	Reason      string        `json:"reason"`             // Error without the repository
	Cause       release.Cause `json:"cause" dbus:"cause"` // of Error; "" if there is none
	HTTPStatus  int           `json:"httpStatus"`         // 0 if the host sent none
	RetryAt     *time.Time    `json:"retryAt" dbus:"retryAt"`
}

// Named is a digest with its best name.
type Named struct {
	Tag    string        `json:"tag"` // long tag, else floating tag, else ""
	Digest digest.Digest `json:"digest"`
}

// ImageStatus is one image of one container.
type ImageStatus struct {
	Image         string `json:"image" dbus:"image"` // repository
	Container     string `json:"container" dbus:"container" label:"container"`
	PodManifest   string `json:"podManifest" dbus:"podManifest" label:"pod_manifest"`
	Follow        string `json:"follow" dbus:"follow"` // floating tag
	Host          string `json:"host"`                 // that answered
	Mirror        bool   `json:"mirror"`
	Running       *Named `json:"running" dbus:"running"`
	Down          *Down  `json:"down"` // null if it runs, or has completed
	LastKnownGood *Named `json:"lastKnownGood"`
	// Previous: the rollback target; null if a rollback leaves the image as it is.
	Previous *Named     `json:"previous" dbus:"previous"`
	Offered  *Named     `json:"offered" dbus:"offered"`
	Change   string     `json:"change" dbus:"change"` // "" if there is no offer
	Created  *time.Time `json:"created"`
	// Size is the compressed size of the offer in bytes; 0 if unknown.
	Size      int64     `json:"size"`
	Staged    bool      `json:"staged" dbus:"staged"`
	StageFrom time.Time `json:"stageFrom,omitzero"` // if it is later
	// RetryAt is when a failed staging is retried.
	RetryAt  *time.Time       `json:"retryAt"`
	SignedBy string           `json:"signedBy"` // the key's fingerprint; "" if not verified, or not signed
	PickedUp bool             `json:"pickedUp" dbus:"pickedUp"`
	Holds    []Hold           `json:"holds"`
	Refused  []policy.Refusal `json:"refused"` // newer tags that are not offered
	// NotAllowed are newer tags that the configuration refuses, the highest for each setting that would allow it.
	NotAllowed   []policy.Refusal      `json:"notAllowed"`
	RebuildsOnly *RebuildsOnly         `json:"rebuildsOnly"` // null if the followed tag can be parsed
	Shortage     *policy.ShortageError `json:"shortage"`     // null if there is enough space
	// Brings is what the catalog says of the releases from the running one to the offer; absent: nothing.
	Brings *format.Brought `json:"brings,omitempty"`
	// Withdrawn: the catalog has withdrawn the running release.
	Withdrawn *catalog.Withdrawal `json:"withdrawn,omitempty"`
	// RolloutAt is when this node applies the offer automatically; absent if the release has no timed rollout.
	RolloutAt time.Time `json:"rolloutAt,omitzero"`
	// Set is the name of the offer's set.
	Set string `json:"set,omitempty"`
	// Bound: the pod manifest has the catalog's digest.
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
	Edits       []Edit      `json:"edits"`     // changes of an apply
	Untouched   []Untouched `json:"untouched"` // references that are not edited, with reasons
	Holds       []Hold      `json:"holds"`
	Error       string      `json:"error"`
	ErrorKind   ErrorKind   `json:"errorKind"`
	// RolledBack: the pod was rolled back, and no newer release was applied since; null if not.
	RolledBack *RolledBack `json:"rolledBack"`
	// CanRollBack: a rollback would change something, and its images are on the node.
	CanRollBack bool `json:"canRollBack"`
	// NoRollback is why it cannot be rolled back to the release that is known; absent if it can, or if none is known.
	NoRollback string `json:"noRollback,omitempty"`
}

// RolledBack describes a rollback, until a newer release is applied.
type RolledBack struct {
	At     time.Time `json:"at"`
	ByHand bool      `json:"byHand"`
	Denied []string  `json:"denied"` // the denied releases
	Runs   []string  `json:"runs"`   // the releases that run instead
	Reason string    `json:"reason"`
	// Retries are what an apply with retry applies: of each image the newest denied release.
	Retries []Retry `json:"retries"`
}

// Retry is a denied release that can be tried again.
type Retry struct {
	Image  string        `json:"image"` // repository
	Tag    string        `json:"tag"`   // its best name
	Digest digest.Digest `json:"digest"`
	Reason string        `json:"reason"` // why it is denied
}

// Untouched is an image reference that rendering does not change.
type Untouched struct {
	Path      string `json:"path"`
	Line      int    `json:"line"`
	Reference string `json:"reference"`
	Reason    string `json:"reason"` // one of the Reason words of package manifests
	Text      string `json:"text"`   // Reason, for people
}

// Name returns the reference; if none is written, its path.
func (u Untouched) Name() string { return cmp.Or(u.Reference, u.Path) }

// Interruption is work that a person's request interrupted.
type Interruption struct {
	Work string    `json:"work"` // poll, staging, health check, or cycle (between two steps)
	For  string    `json:"for"`  // apply, rollback, hold, resume or reload
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

// State is the node's state in one word.
type State string

// The states. StateKinds has what they mean, by precedence.
const (
	StateApplying  State = "applying"
	StateFailed    State = "failed"
	StateHeld      State = "held"
	StateStale     State = "stale"
	StateUnchecked State = "unchecked"
	StateStaged    State = "staged"
	StateCurrent   State = "current"
)

// StateKind is one row of the table of states, which docs/status.md and the manual page show (make tables).
type StateKind struct {
	State   State
	Meaning string // for people, in Markdown, without a full stop
	Remedy  string // what a person can do
}

// StateKinds returns the table of states, by precedence: the first state that applies is the node's.
func StateKinds() []StateKind {
	return []StateKind{
		{
			StateApplying, "a pod is being restarted, or kubelet is starting a new container",
			"wait, at most for `applyTimeout` (or a longer startup probe) and `settle`, twice with a rollback",
		},
		{
			StateFailed, "an update failed, a container does not run, a followed tag is gone, or the agent cannot read or " +
				"write what it needs",
			"do what `status` says",
		},
		{StateHeld, "updates are available but blocked by a hold", "see the remedy of the hold; often nothing"},
		{StateStale, "a source did not answer the last poll", "repair it; staged updates can still be applied"},
		{
			StateUnchecked, "the agent has not asked for an image yet, or has not run since the node booted",
			"wait ten minutes, or `image-update-agent check`",
		},
		{StateStaged, "updates are on the node and wait for approval", "`image-update-agent apply`"},
		{StateCurrent, "everything is up to date", "nothing"},
	}
}

// ReleaseState is what a node does with a release.
type ReleaseState string

// The states. If the containers of a node differ, the first state counts.
const (
	ReleaseFailed   ReleaseState = "failed"   // it did not become healthy, does not run any more, or was rolled back
	ReleaseHeld     ReleaseState = "held"     // a hold blocks also an apply by a person
	ReleaseOffered  ReleaseState = "offered"  // it is not staged yet
	ReleaseStaged   ReleaseState = "staged"   // it waits for an approval, a window, the lock or its time in a rollout
	ReleaseStarting ReleaseState = "starting" // kubelet has not started it yet, or it has not been verified
	ReleaseRunning  ReleaseState = "running"  // it has passed its health check
)

// ReleaseStates returns all states, in that order.
func ReleaseStates() []ReleaseState {
	return []ReleaseState{
		ReleaseFailed, ReleaseHeld, ReleaseOffered, ReleaseStaged, ReleaseStarting, ReleaseRunning,
	}
}

// ReleaseStatus is the state of one release on the node. A release is listed once, whatever number of containers it is
// for.
type ReleaseStatus struct {
	Image  string        `json:"image"` // repository
	Tag    string        `json:"tag"`   // its best name
	Digest digest.Digest `json:"digest"`
	State  ReleaseState  `json:"state"`
}

// NotAllowed is a newer tag that the configuration refuses.
type NotAllowed struct {
	Image string `json:"image" dbus:"image"` // repository
	Tag   string `json:"tag" dbus:"tag"`
	Rule  string `json:"rule" dbus:"rule"` // updates, max, allow, deny or kubeadm
	Key   string `json:"key" dbus:"key"`   // the setting that would allow it, as in "updates: minor"
}

// maxNamed limits the items in a sentence.
const maxNamed = 3

func few(names []string) string {
	if len(names) > maxNamed {
		names = append(slices.Clone(names[:maxNamed]), "and more")
	}
	return strings.Join(names, ", ")
}

// LastPart returns the last path element of a repository.
func LastPart(repository string) string { return repository[strings.LastIndex(repository, "/")+1:] }

// Announcement is the content of the salt grain for the admin's UI.
type Announcement struct {
	State      string
	Reason     string // why a pod did not come up; empty if none failed
	Updates    []AnnouncedUpdate
	NotAllowed []NotAllowed
}

// AnnouncedUpdate is one staged image that waits for approval.
type AnnouncedUpdate struct {
	Image  string        `json:"image" dbus:"image"` // repository
	Change string        `json:"change" dbus:"change"`
	From   string        `json:"from" dbus:"from"` // the running release by its best name; "" if unknown
	To     string        `json:"to" dbus:"to"`
	Digest digest.Digest `json:"digest" dbus:"digest"` // of To
	// Severity and Fixes are what the catalog says of the releases from From to To; empty: nothing.
	Severity format.Severity `json:"severity,omitempty" dbus:"severity"`
	Fixes    []string        `json:"fixes,omitempty" dbus:"fixes"`
}

// Sentence explains why the pod is not updated, and what ends that.
func (b RolledBack) Sentence(file string) string {
	return fmt.Sprintf("%s was rolled back to %s; %s is denied until apply --retry %s or a newer release",
		file, few(b.Runs), few(b.Denied), file)
}

// RebuildsOnly is a followed tag that cannot be ordered, or that the configured pattern compares with no other tag: no
// tag is newer, and only another digest is offered.
type RebuildsOnly struct {
	Tag string `json:"tag"`
	// Reason is why it cannot be ordered: "a hash in it, which has no order".
	Reason string `json:"reason"`
	// Pattern is a `tags.pattern` that orders the tag and another listed one; empty if none is known.
	Pattern string `json:"pattern,omitempty"`
}

// RebuildsOnlyOf describes a tag that a scheme cannot read, with a pattern that orders it and another one of its
// repository; nil if it can.
func RebuildsOnlyOf(tag string, s tags.Scheme, listed []string) *RebuildsOnly {
	_, err := s.Parse(tag)
	if err == nil || tag == "" {
		return nil
	}
	return &RebuildsOnly{Tag: tag, Reason: tags.Reason(err), Pattern: tags.PatternFor(tag, listed)}
}

// SPDX-License-Identifier: Apache-2.0

// Package record holds the state that the agent cannot observe again, or only with a request: answers, approvals,
// holds, denials, known good releases. The Store of a running agent owns the Record; only the methods of the Record and
// of its maps change it. Retain removes the data that the node does not need.
//
// An approval names pod, digests and rendered file as one hash: its tag may move to a build that nobody staged, or the
// registry may go away for a week. It is void when one of them changes, after one attempt, after a day, or by a hold. A
// denial is per node, since the node may be the cause; it ends with `apply --retry`, when the digest runs healthy, or
// after 90 days in which nothing names it. The history is in the record, so that no crash separates a change from the
// result of its health check.
package record

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// RecordVersion is the version of the record's format. A newer agent reads older records.
// An older agent sets a newer record aside and starts with an empty one.
const RecordVersion = 1

// Record is the state that the agent cannot observe again, or only with a request. It is one small file that a person
// can read. The zero value is for a node where the agent never ran. Only the methods of the record and of its maps
// change it.
type Record struct {
	Version int `json:"version"`
	// State is the node's last reported state, and Since when it began.
	State status.State `json:"state,omitempty"`
	Since time.Time    `json:"since,omitzero"`
	// LastCheck is the end of the last poll, successful or not.
	LastCheck time.Time `json:"lastCheck,omitzero"`
	// Releases are described builds, by "repository@digest".
	Releases Entries[release.Release] `json:"releases,omitempty"`
	// Lists are the last tag lists, by repository.
	Lists Entries[TagList] `json:"lists,omitempty"`
	// Sources are the last results of each repository's source, by repository.
	Sources Entries[SourceRecord] `json:"sources,omitempty"`
	// Offers are the last answers, by Question. They stay valid while the registry is
	// away, and after a restart.
	Offers Entries[Answer] `json:"offers,omitempty"`
	// Wrote are the digests of the pod manifests that the agent wrote, by file name: only these are removed with their
	// template.
	Wrote Entries[digest.Digest] `json:"wrote,omitempty"`
	// Private are the repositories whose last answer needed a login.
	Private Entries[bool] `json:"private,omitempty"`
	// Bound are the digests that the agent wrote from a catalog, by file name and place ("container velum").
	Bound Entries[map[string]digest.Digest] `json:"bound,omitempty"`
	// Good are the known good releases, by "podManifest/container".
	Good Entries[Good] `json:"good,omitempty"`
	// Approved are the approvals not applied yet, by pod manifest.
	Approved Entries[Approval] `json:"approved,omitempty"`
	// HeldBack are the approved applies that were held, by pod manifest.
	HeldBack Entries[HeldApply] `json:"heldBack,omitempty"`
	// Holds are people's holds, by repository; "*": all repositories.
	Holds Entries[PersonHold] `json:"holds,omitempty"`
	// Signed are the keys that signed releases, by "repository@digest".
	Signed Entries[string] `json:"signed,omitempty"`
	// Unsigned are the releases without a valid signature, by "repository@digest".
	Unsigned Entries[Unsigned] `json:"unsigned,omitempty"`
	// MinSpace is the minimum unpacked size in bytes of a release that filled the disk, by "repository@digest".
	MinSpace Entries[int64] `json:"minSpace,omitempty"`
	// Pace is the state of the limits for requests.
	Pace Pace `json:"pace,omitzero"`
	// Failed are the pods that did not come up, by pod manifest.
	Failed Entries[Failure] `json:"failed,omitempty"`
	// Unchecked are the pods whose releases run, but could not be verified, by pod manifest.
	Unchecked Entries[Unchecked] `json:"unchecked,omitempty"`
	// Denied are the releases that did not come up, by "repository@digest".
	Denied Entries[Denial] `json:"denied,omitempty"`
	// Overrides are the pod manifests with digests in place of followed tags, by file name.
	Overrides Entries[Override] `json:"overrides,omitempty"`
	History   History           `json:"history,omitempty"`
	// Sets are the sets whose pods have begun to restart, by name.
	Sets Entries[BegunSet] `json:"sets,omitempty"`
	// Lock is the node's fleet lock.
	Lock fleet.LockRecord `json:"lock,omitzero"`
	// LockWorked is the last time that the lock worked.
	LockWorked fleet.LockWorked `json:"lockWorked,omitzero"`
	Clock      Clock            `json:"clock,omitzero"`
	// New: the record began empty, and no cycle has observed the node since.
	New bool `json:"new,omitempty"`
	// Lost is set after an earlier record was lost, until a person confirms it.
	Lost *Lost `json:"lost,omitempty"`
}

// Entries are the elements of one kind in the record.
type Entries[V any] map[string]V

// Set stores a value.
func (e *Entries[V]) Set(key string, value V) {
	if *e == nil {
		*e = Entries[V]{}
	}
	(*e)[key] = value
}

// Delete removes a value.
func (e Entries[V]) Delete(key string) { delete(e, key) }

// Undo returns a function that restores the current value of a key.
func (e *Entries[V]) Undo(key string) func() {
	value, is := (*e)[key]
	return func() {
		e.Delete(key)
		if is {
			e.Set(key, value)
		}
	}
}

// Retain removes all values whose key is not in keep.
func (e Entries[V]) Retain(keep map[string]bool) {
	for key := range e {
		if !keep[key] {
			delete(e, key)
		}
	}
}

// TagList has the SUSE tags of a tag list.
type TagList struct {
	At   time.Time `json:"at"`
	Tags []string  `json:"tags"`
	// Unrecognized and Malformed count the tags that were left out.
	Unrecognized int `json:"unrecognized,omitempty"`
	Malformed    int `json:"malformed,omitempty"`
	// Unread are tags of other schemes in which a person may read a version, the highest first.
	Unread []string `json:"unread,omitempty"`
	// Error is the answer of a host that serves no lists, and NoList its parts.
	Error  string  `json:"refused,omitempty"`
	NoList *NoList `json:"noList,omitempty"`
}

// Answer is the source's answer to a question.
type Answer struct {
	At     time.Time       `json:"at"`
	Follow release.Release `json:"follow"` // the release of the followed tag
	// Newest is the newest release that the rules allowed at the time of the answer; Follow if none was newer. Plans
	// choose again by the current rules.
	Newest release.Release `json:"newest"`
	Newer  []Candidate     `json:"newer,omitempty"` // above Follow, the highest first
	// Rules identifies the rules at that time (Rule.Fingerprint); empty if unknown. Under other rules the question is
	// asked again at RetryAt.
	Rules   string    `json:"rules,omitempty"`
	RetryAt time.Time `json:"again,omitzero"`
	Host    string    `json:"host,omitempty"`   // that answered
	Mirror  bool      `json:"mirror,omitempty"` // Host is not the host in the repository's name
	// Refused are tags that the source or its state refuses, the highest first. Plans add those that the configuration
	// refuses.
	Refused []policy.Refusal `json:"refusedTags,omitempty"`
	Notes   []string         `json:"notes,omitempty"`
	// LooksNewer are tags of the list that look newer, but that no rule can compare.
	LooksNewer []tags.NotUnderstood `json:"looksNewer,omitempty"`
	// StageFrom is when this node's pull of Newest may begin.
	StageFrom time.Time `json:"stageFrom,omitzero"`
	// Error is the source's answer if it has nothing to offer; Gone: the followed tag does not exist. Follow and Newest
	// are empty then.
	Error string `json:"refused,omitempty"`
	Gone  bool   `json:"gone,omitempty"`
	// NoList is why newer tags are unknown; nil if they are known, or if the rules need none.
	NoList *NoList `json:"noList,omitempty"`
	// Unlisted: the catalog offers no release of the tag.
	Unlisted bool `json:"unlisted,omitempty"`
}

// Confirmed returns the releases that may be applied, as far as the rules allow them.
func (m Answer) Confirmed() []release.Release {
	out := []release.Release{m.Follow, m.Newest}
	for _, c := range m.Newer {
		if c.Confirmed && c.Digest != "" {
			out = append(out, c.Release)
		}
	}
	return out
}

// SourceCatalog is the kind of a source with a catalog.
const SourceCatalog = "catalog"

// SourceRecord is the last result of a repository's source.
type SourceRecord struct {
	Kind string `json:"kind,omitempty"` // SourceCatalog; empty: the tags of the repository
	// Refused: the source answered, and the answer must not be used.
	Refused bool `json:"unusable,omitempty"`

	Host     string `json:"host,omitempty"`
	Mirror   bool   `json:"mirror,omitempty"`
	Insecure bool   `json:"insecure,omitempty"`
	// HostsIgnored is as in release.Resolved.
	HostsIgnored string `json:"hostsIgnored,omitempty"`
	// Skipped is the failure of a host before the one that answered; empty if there is none.
	Skipped     string        `json:"skipped,omitempty"`
	LastSuccess time.Time     `json:"lastSuccess,omitzero"`
	Failures    int           `json:"failures,omitempty"` // consecutive ones
	Error       string        `json:"error,omitempty"`
	Reason      string        `json:"reason,omitempty"` // Error without the repository
	Cause       release.Cause `json:"cause,omitempty"`
	HTTPStatus  int           `json:"httpStatus,omitempty"`
	RetryAt     time.Time     `json:"retryAt,omitzero"`
	// List: the followed tags were resolved, but the tag list failed.
	List bool `json:"list,omitempty"`
}

// NoList is why a host serves no tag list: HTTP 401 to 405. Newer tags are unknown.
type NoList struct {
	Host       string        `json:"host,omitempty"`
	Cause      release.Cause `json:"cause,omitempty"`
	HTTPStatus int           `json:"httpStatus,omitempty"`
	Error      string        `json:"error"`
	Since      time.Time     `json:"since"`
}

// Good is a known good digest, and its rollback targets. All stay pinned.
type Good struct {
	Repository string        `json:"repository"`
	Running    digest.Digest `json:"running"`
	// Before are the rollback targets, the last one first.
	Before []release.Pin `json:"before,omitempty"`
	// PickedUp: kubelet started Running without an approval.
	PickedUp bool `json:"pickedUp,omitempty"`
	// Down: its container did not run when the pod was last seen with known good releases.
	Down bool `json:"down,omitempty"`
}

// Approval is bound to an offer: if the offer changes, the approval is void. An approval by mode auto only says which
// containers ran before it.
type Approval struct {
	At    time.Time `json:"at"`
	Offer string    `json:"offer"` // PodPlan.Offer
	// WasHealthy: the pod was healthy before the apply.
	WasHealthy bool         `json:"well,omitempty"`
	Ran        []string     `json:"ran,omitempty"` // the containers that ran before it, unless WasHealthy
	By         status.Actor `json:"by,omitzero"`
}

// HasRun reports whether a container ran before the apply.
func (a Approval) HasRun(container string) bool {
	return a.WasHealthy || slices.Contains(a.Ran, container)
}

// HeldApply is an approved apply that was held. Its approval is used up.
type HeldApply struct {
	At     time.Time        `json:"at"`
	Offer  string           `json:"offer"` // PodPlan.Offer
	Kind   status.ErrorKind `json:"kind"`
	Reason string           `json:"reason"`
}

// PersonHold is a hold that a person set on a repository.
type PersonHold struct {
	At     time.Time    `json:"at"`
	Until  time.Time    `json:"until,omitzero"` // zero: until a person removes it
	Reason string       `json:"reason,omitempty"`
	By     status.Actor `json:"by,omitzero"`
}

// Unchecked is a pod of which nobody can tell whether it works.
type Unchecked struct {
	At      time.Time `json:"at"`
	Running string    `json:"runs"` // the running releases
	Reason  string    `json:"reason"`
}

// Failure is a pod that did not come up after an apply, a rollback, or a start by kubelet.
type Failure struct {
	At      time.Time `json:"at"`
	Offer   string    `json:"offer"`          // PodPlan.ID
	Running string    `json:"runs,omitempty"` // running releases, if the health check was without an apply
	Reason  string    `json:"reason"`
	// Past: a person has checked since. The state is not failed, but mode auto still does not apply the release.
	Past bool `json:"past,omitempty"`
}

// Candidate is a tag above the followed one. Each plan applies the rules to it.
type Candidate struct {
	release.Release // only the tag if it was not resolved
	// Listed is the tag in the list; empty if it is the one of Release.
	Listed string `json:"listed,omitempty"`
	// Refusal is why the source or the platform refuses it; nil if they do not.
	Refusal *policy.Refusal `json:"no,omitempty"`
	// Confirmed: its digest was read as often as an offer needs.
	Confirmed bool `json:"settled,omitempty"`
}

// ListedTag returns the tag that the source lists.
func (c Candidate) ListedTag() string { return cmp.Or(c.Listed, c.Tag) }

// ApprovalAge is how long an approval stays valid, so that a forgotten one does not
// restart a pod days later.
const ApprovalAge = 24 * time.Hour

// IsValid reports whether an approval is valid. An approval from the future was given under a wrong clock, or the clock
// was set back: its age is unknown.
func (a Approval) IsValid(now time.Time) bool {
	age := now.Sub(a.At)
	return age <= ApprovalAge && age >= -slack
}

// GoodKey returns the key of a container in Record.Good.
func GoodKey(file, container string) string { return file + "/" + container }

// AllImages is the key of a hold on all images.
const AllImages = "*"

// Unsigned is a release without a valid signature.
type Unsigned struct {
	Reason string `json:"reason"`
	Forged bool   `json:"forged,omitempty"` // it has signatures, but none is valid
	Keys   string `json:"keys,omitempty"`
	Tries  int    `json:"tries"`
	// RetryAt is when the signature is verified again.
	RetryAt time.Time `json:"retryAt,omitzero"`
}

// maxRetryWait is the longest wait before a source is asked again: the maximum Retry-After of a day, and one and a half
// times that for the spread. A later time comes from a wrong clock.
const maxRetryWait = 3 * policy.MaxBackoff

// NextRetry returns when a failed source is asked again; false if it has not failed.
func (s SourceRecord) NextRetry(now time.Time) (time.Time, bool) {
	if s.Failures == 0 {
		return time.Time{}, false
	}
	if s.RetryAt.Sub(now) > maxRetryWait {
		return now, true
	}
	return s.RetryAt, true
}

// Err returns the last failure of a source.
func (s SourceRecord) Err(repository string) error {
	return &release.RecordedError{Text: s.Error, Cause: &release.SourceError{
		Repository: repository, Host: s.Host, Mirror: s.Mirror, Status: s.HTTPStatus, Cause: s.Cause,
	}}
}

// StaleSources returns the sources that do not answer, with the time of the first failure.
func StaleSources(sources Entries[SourceRecord]) []status.Reason {
	var out []status.Reason
	for name, s := range sources {
		if s.Failures > 0 && !s.Refused {
			never, last := "never answered", "last answer "
			if s.List {
				never, last = "newer tags are unknown", "newer tags known until "
			}
			since := never
			if !s.LastSuccess.IsZero() {
				since = last + s.LastSuccess.UTC().Format(time.RFC3339)
			}
			out = append(out, status.Reason{
				Kind: status.KindSource, Image: name, Host: s.Host, Cause: s.Cause, HTTPStatus: s.HTTPStatus,
				Since: s.LastSuccess, RetryAt: s.RetryAt, Text: fmt.Sprintf("%s (%d failures, %s)", s.Error, s.Failures, since),
			})
		}
	}
	return status.Sorted(out)
}

// NextRetry returns when a question is asked again because its rules have changed.
func (m Answer) NextRetry(now time.Time) (time.Time, bool) {
	if m.RetryAt.Sub(now) > policy.MaxBackoff {
		return now, true // recorded under a wrong clock
	}
	return m.RetryAt, !m.RetryAt.IsZero()
}

// AwaySince returns the last answer of a registry for any of its repositories, if none of them answers now; nil if one
// does, or if none was asked.
func (r *Record) AwaySince(registry string) *time.Time {
	var last time.Time
	for name, s := range r.Sources {
		if localregistry.RegistryOf(name) != registry || s.Kind != "" {
			continue
		}
		if s.Failures == 0 || s.List {
			return nil
		}
		last = later(last, s.LastSuccess)
	}
	if last.IsZero() {
		return nil
	}
	last = last.UTC()
	return &last
}

// IsLockDue reports whether the fleet lock must be released now. It is kept while a pod that was restarted under it
// failed, does not run, cannot be read, has a pending rollback, or belongs to a begun set.
func (r *Record) IsLockDue(use InUse, now time.Time) bool {
	t := retention{r, use, now}
	return r.Lock.IsDue(now, func(file string) fleet.Pod {
		p, known := use.Pods[file]
		isUnverified := known && (p.Broken || !p.AllRun || t.runsUnverified(file, p))
		return fleet.Pod{
			Awaits:     p.AwaitsLock || r.Overrides[file].Pending,
			Unverified: isUnverified || r.hasFailed(file) || r.SetOf(file) != "",
		}
	})
}

// hasFailed reports whether a pod did not come up, or has a pending rollback. After another failure it still runs its
// previous release.
func (r *Record) hasFailed(file string) bool {
	return r.Failed[file].Running != "" || r.Overrides[file].Pending
}

// FailedUnderLock returns the pod manifests that failed under the lock, for which it is kept.
func (r *Record) FailedUnderLock() []string {
	if r.Lock.State != fleet.LockHeld {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.Lock.Pods), func(file string) bool { return !r.hasFailed(file) })
}

// LockStatus returns the status of the lock; nil if none is configured.
func (r *Record) LockStatus(at fleet.Lock) *fleet.LockStatus {
	return r.Lock.LockStatus(at, r.LockWorked, r.FailedUnderLock())
}

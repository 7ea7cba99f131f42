// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// RecordVersion is the version of the record's form. A newer agent reads older
// ones; an older agent sets a newer one aside and starts empty, because
// everything in the record can be learnt again or be missed.
const RecordVersion = 1

// Record is what cannot be observed again, or only at the price of a request:
// one small file that a person can read. The zero value is a node where the
// agent never ran. Its maps may be nil. Only the methods of the record and of its
// maps change it; everybody may read the fields.
type Record struct {
	Version int `json:"version"`
	// Since and State keep since when the node is in its state.
	State status.State `json:"state,omitempty"`
	Since time.Time    `json:"since,omitzero"`
	// LastCheck is the end of the last poll, successful or not.
	LastCheck time.Time `json:"lastCheck,omitzero"`
	// Releases are builds by "repository@digest": learnt once, never asked again
	// while they run, are offered or are a rollback target.
	Releases Entries[release.Release] `json:"releases,omitempty"`
	// Lists are the tags of a repository as last listed.
	Lists Entries[TagList] `json:"lists,omitempty"`
	// Sources is how each repository's source answered, by repository.
	Sources Entries[SourceRecord] `json:"sources,omitempty"`
	// Offers are the last answers, by Question, so that a registry that is away
	// or a restart takes no offer back.
	Offers Entries[Answer] `json:"offers,omitempty"`
	// Wrote is the digest of the pod manifests that we wrote, by file name: only
	// these are removed when their template disappears.
	Wrote Entries[digest.Digest] `json:"wrote,omitempty"`
	// Good is the digest that last ran as it should, by "podManifest/container".
	Good Entries[Good] `json:"good,omitempty"`
	// Approved are the offers that a person has approved and that are not applied
	// yet, by pod manifest.
	Approved Entries[Approval] `json:"approved,omitempty"`
	// Holds are the holds of persons, by repository; "*" is all of them.
	Holds Entries[PersonHold] `json:"holds,omitempty"`
	// Signed are the keys that signed releases, by "repository@digest".
	Signed Entries[string] `json:"signed,omitempty"`
	// Unproved are the releases that were not signed well, by "repository@digest".
	Unproved Entries[Unproved] `json:"unproved,omitempty"`
	// Least is what a release that has filled the disk needs at least, unpacked, in
	// bytes, by "repository@digest".
	Least Entries[int64] `json:"least,omitempty"`
	// Pace is what hosts and the request budget leave for later.
	Pace Pace `json:"pace,omitzero"`
	// Failed are what did not come up, by pod manifest.
	Failed Entries[Failure] `json:"failed,omitempty"`
	// Denied are the releases that did not come up on this node, by
	// "repository@digest".
	Denied Entries[Denial] `json:"denied,omitempty"`
	// Overrides are the pod manifests that name digests instead of what they follow,
	// by file name.
	Overrides Entries[Override] `json:"overrides,omitempty"`
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

// Retain removes all values but those of keep.
func (e Entries[V]) Retain(keep map[string]bool) {
	for key := range e {
		if !keep[key] {
			delete(e, key)
		}
	}
}

// TagList is what a repository listed at a time: the SUSE tags only.
type TagList struct {
	At   time.Time `json:"at"`
	Tags []string  `json:"tags"`
	// Foreign and Malformed count what was left out.
	Foreign   int `json:"foreign,omitempty"`
	Malformed int `json:"malformed,omitempty"`
	// Refused is the answer of a host that serves no lists.
	Refused string `json:"refused,omitempty"`
}

// Answer is an Offer as the record keeps it.
type Answer struct {
	At     time.Time       `json:"at"`
	Follow release.Release `json:"follow"`
	Newest release.Release `json:"newest"`
	Newer  []Candidate     `json:"newer,omitempty"`
	// Rules identifies the rules by which it was asked (Rule.asks); empty: not
	// known. Under others it is asked again at Again.
	Rules  string    `json:"rules,omitempty"`
	Again  time.Time `json:"again,omitzero"`
	Host   string    `json:"host,omitempty"` // that answered
	Mirror bool      `json:"mirror,omitempty"`
	// RefusedTags are those of the list that are not offered, and why.
	RefusedTags []policy.Refusal `json:"refusedTags,omitempty"`
	Notes       []string         `json:"notes,omitempty"`
	// StageFrom is when this node's pull of Newest may begin.
	StageFrom time.Time `json:"stageFrom,omitzero"`
	// Refused is why there is nothing to offer, in the source's own answer; Gone
	// that the followed tag is not there. Follow and Newest are empty then.
	Refused string `json:"refused,omitempty"`
	Gone    bool   `json:"gone,omitempty"`
}

// SourceRecord is how a repository's source answered.
type SourceRecord struct {
	Host        string        `json:"host,omitempty"`
	Mirror      bool          `json:"mirror,omitempty"`
	Insecure    bool          `json:"insecure,omitempty"`
	LastSuccess time.Time     `json:"lastSuccess,omitzero"`
	Failures    int           `json:"failures,omitempty"` // in a row
	Error       string        `json:"error,omitempty"`
	Reason      string        `json:"reason,omitempty"` // Error without the repository
	Cause       release.Cause `json:"cause,omitempty"`
	HTTPStatus  int           `json:"httpStatus,omitempty"`
	RetryAt     time.Time     `json:"retryAt,omitzero"`
}

// Good is a digest that ran as it should, and those that did before it: the
// rollback targets. All stay pinned.
type Good struct {
	Repository string        `json:"repository"`
	Running    digest.Digest `json:"running"`
	// Before are the ones before Running, the last one first.
	Before []release.Pin `json:"before,omitempty"`
	// Adopted: kubelet took Running by itself, nobody approved it.
	Adopted bool `json:"adopted,omitempty"`
}

// Approval is bound to exactly what was offered: if the offer changes, the
// approval is void.
type Approval struct {
	At    time.Time `json:"at"`
	Offer string    `json:"offer"` // PodPlan.Offer
	// Well: the pod ran well then. What it is like later may be the apply's own doing.
	Well bool `json:"well,omitempty"`
}

// PersonHold is a person's wish that nothing of a repository is applied.
type PersonHold struct {
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"` // zero: until it is taken back
	Reason string    `json:"reason,omitempty"`
}

// Failure is a pod that did not come up: an apply, a rolling back, or what kubelet
// took by itself.
type Failure struct {
	At     time.Time `json:"at"`
	Offer  string    `json:"offer"`          // the PodPlan.ID of then
	Runs   string    `json:"runs,omitempty"` // what ran when a proof without an apply did not succeed
	Reason string    `json:"reason"`
}

// Candidate is a tag above the followed one, as the source has it. What the
// rules say of it is not kept: they are asked anew for each plan.
type Candidate struct {
	// Release is what it names; nothing but the tag where no rule of then needed
	// that to be asked for.
	release.Release
	// Listed is the tag in the list, where another one stands for it in Release.
	Listed string `json:"listed,omitempty"`
	// No is why nobody can run it, whatever the rules are; nil: nothing is known
	// against it.
	No *policy.Refusal `json:"no,omitempty"`
	// Settled: what it names was read as often as it takes for it to be offered.
	Settled bool `json:"settled,omitempty"`
}

// ListedTag is the tag that the source lists.
func (c Candidate) ListedTag() string {
	if c.Listed != "" {
		return c.Listed
	}
	return c.Tag
}

// ApprovalAge is how long a yes holds that could not be carried out: a day, so
// that a forgotten approval does not restart a pod in the middle of next week.
const ApprovalAge = 24 * time.Hour

// Stands reports whether a yes is young enough. One from the future was given
// under a wrong clock.
func (y Approval) Stands(now time.Time) bool {
	age := now.Sub(y.At)
	return age <= ApprovalAge && age >= -ApprovalAge
}

// GoodKey is the key of a container in Record.Good.
func GoodKey(file, container string) string { return file + "/" + container }

// Everything is the key of a hold on all images.
const Everything = "*"

func (h PersonHold) Stands(now time.Time) bool { return h.Until.IsZero() || now.Before(h.Until) }

// Unproved is a release without a good signature.
type Unproved struct {
	Reason string `json:"reason"`
	Forged bool   `json:"forged,omitempty"` // there were signatures, and none was good
	Keys   string `json:"keys,omitempty"`
	Tries  int    `json:"tries"`
	// RetryAt is when it is looked for again: it may be signed by then.
	RetryAt time.Time `json:"retryAt,omitzero"`
}

// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// Kind is the kind of a reason. Kinds are part of the machine interface.
type Kind string

// The kinds, by state.
const (
	// Of the state applying.
	KindApplying Kind = "applying" // pods are being restarted
	// Of applying, or failed.
	KindDown Kind = "down" // a container does not run: podManifest, container, since
	// Of failed.
	KindNode     Kind = "node"         // the node could not be observed
	KindRecord   Kind = "record"       // the record could not be written
	KindDropped  Kind = "dropped"      // entries of the record or the status were dropped
	KindManifest Kind = "pod-manifest" // it could not be read or rendered: podManifest
	KindTagGone  Kind = "tag-gone"     // the registry no longer has a followed tag: podManifest, image, tag
	// KindTagNotFound: the registry does not have a followed tag, which is not known to have existed: same fields.
	KindTagNotFound   Kind = "tag-not-found"
	KindRolledBack    Kind = "rolled-back"    // a pod did not come up, or a person rolled it back: podManifest
	KindNotUp         Kind = "not-up"         // a pod did not come up and was not rolled back: podManifest
	KindCatalog       Kind = "catalog"        // the catalog was refused (failed) or has expired (stale): image is its name
	KindWithdrawn     Kind = "withdrawn"      // a running release was withdrawn, no replacement: podManifest, image, tag
	KindLock          Kind = "lock"           // a failed pod keeps the fleet lock: podManifest, since
	KindLocalRegistry Kind = "local-registry" // containerd does not ask the enabled local registry: host is the registry
	KindUnlock        Kind = "unlock"         // the fleet lock cannot be released: host, httpStatus, since, retryAt
	// Of failed, or of held if it only waits.
	KindStep Kind = "step" // the agent's own work: errorKind; podManifest, or image and digest
	// Of any state.
	KindDenied Kind = "denied"      // a running release is denied here: podManifest, container, image, tag, digest, since
	KindLost   Kind = "record-lost" // the agent's record was lost, and no person has confirmed it: since
	// Of held.
	KindHold    Kind = "hold"  // see holds: hold, until; podManifest or image
	KindAwaited Kind = "await" // a newer release is expected: rule, image, tag
	// Of stale.
	KindSource Kind = "source" // a source does not answer: image, host, cause, httpStatus, since, retryAt
	// Of unchecked.
	KindStarting Kind = "starting"  // the daemon has not observed the node yet
	KindUnasked  Kind = "not-asked" // no source has been asked yet: podManifest or image
	// Of staged, and after the reasons of other states. KindApproval: an offer waits for approval: podManifest, change;
	// if its last apply was held: held, errorKind, since.
	KindApproval Kind = "approval"
	// Of current. KindUnchecked: a pod runs, but nobody can tell whether it works: podManifest, since.
	KindUnchecked    Kind = "not-checked"
	KindNone         Kind = "none"          // there is nothing to do
	KindNoTagList    Kind = "no-tag-list"   // no tag list is served (401 to 405): image, host, cause, httpStatus, since
	KindNotAllowed   Kind = "not-allowed"   // a newer release that the configuration refuses: image, tag, rule
	KindLooksNewer   Kind = "looks-newer"   // a tag looks newer, but cannot be compared: image, tag
	KindRebuildsOnly Kind = "rebuilds-only" // the followed tag cannot be ordered: image, tag
)

// MustNotRun reports whether a reason is about a running release that must not run any more.
func (k Kind) MustNotRun() bool { return k == KindWithdrawn || k == KindDenied }

// Reason is one reason for the node's state. Programs read the kind and its fields; Text is
// for people.
type Reason struct {
	Kind        Kind          `json:"kind"`
	Text        string        `json:"text"`
	PodManifest string        `json:"podManifest,omitempty"`
	Container   string        `json:"container,omitempty"`
	Image       string        `json:"image,omitempty"` // repository
	Tag         string        `json:"tag,omitempty"`
	Digest      digest.Digest `json:"digest,omitempty"`
	Change      string        `json:"change,omitempty"`
	Hold        string        `json:"hold,omitempty"` // its name
	Held        string        `json:"held,omitempty"` // why the last approved apply was held
	Rule        string        `json:"rule,omitempty"`
	ErrorKind   ErrorKind     `json:"errorKind,omitempty"`
	Host        string        `json:"host,omitempty"`
	Cause       release.Cause `json:"cause,omitempty"`
	HTTPStatus  int           `json:"httpStatus,omitempty"`
	Since       time.Time     `json:"since,omitzero"`
	Until       time.Time     `json:"until,omitzero"`
	RetryAt     time.Time     `json:"retryAt,omitzero"`
}

// ErrorKind is the kind of an error.
type ErrorKind string

// The kinds of errors.
const (
	ErrorDisk      ErrorKind = "disk"        // the image filesystem is too full
	ErrorUnsigned  ErrorKind = "unsigned"    // the release has no signature (yet)
	ErrorForged    ErrorKind = "forged"      // it has signatures, but none is valid
	ErrorNotFound  ErrorKind = "not-found"   // the source has no such tag, digest or repository
	ErrorPlatform  ErrorKind = "platform"    // the image is not for this node's platform
	ErrorSource    ErrorKind = "source"      // the source does not answer
	ErrorUnlisted  ErrorKind = "unlisted"    // the catalog offers no release of the tag
	ErrorCatalog   ErrorKind = "catalog"     // the catalog must not be used
	ErrorNotAsked  ErrorKind = "not-asked"   // no poll has asked for it yet
	ErrorNotUp     ErrorKind = "not-up"      // the pod was observed not to come up
	ErrorUnchecked ErrorKind = "not-checked" // the pod runs, but nobody can tell whether it works
	ErrorConflict  ErrorKind = "conflict"    // the file was changed meanwhile
	ErrorHeld      ErrorKind = "held"        // it must wait
	ErrorOther     ErrorKind = "other"
)

// ErrorKindOf returns the most specific kind of an error; empty if there is no error.
func ErrorKindOf(err error) ErrorKind {
	_, isShort := errors.AsType[*policy.ShortageError](err)
	_, isSource := errors.AsType[*release.SourceError](err)
	_, isUnchecked := errors.AsType[*release.UncheckedError](err)
	switch {
	case err == nil:
		return ""
	case isShort, errors.Is(err, release.ErrNoSpace):
		return ErrorDisk
	case errors.Is(err, release.ErrUnsigned):
		return ErrorUnsigned
	case errors.Is(err, release.ErrForged):
		return ErrorForged
	case errors.Is(err, release.ErrNotFound):
		return ErrorNotFound
	case errors.Is(err, release.ErrPlatform):
		return ErrorPlatform
	case errors.Is(err, release.ErrUnlisted):
		return ErrorUnlisted
	case errors.Is(err, release.ErrCatalog):
		return ErrorCatalog
	case isSource:
		return ErrorSource
	case errors.Is(err, release.ErrNotAsked):
		return ErrorNotAsked
	case release.IsDown(err):
		return ErrorNotUp
	case isUnchecked:
		return ErrorUnchecked
	case errors.Is(err, release.ErrConflict):
		return ErrorConflict
	case errors.Is(err, release.ErrHeld):
		return ErrorHeld
	default:
		return ErrorOther
	}
}

// item returns a reason's part of a sentence. Reasons of one kind share the lead.
func (r Reason) item() (lead, item string) {
	switch r.Kind {
	case KindUnasked:
		return "no registry has been asked yet for ", cmp.Or(r.PodManifest, r.Image)
	case KindApproval:
		held := ""
		if r.Held != "" {
			held = "; the apply of " + r.Since.Format(time.RFC3339) + " was held: " + r.Held
		}
		return "waiting for approval: ", r.PodManifest + " (" + r.Change + held + ")"
	case KindNotAllowed:
		return "newer but not allowed: ", LastPart(r.Image) + " " + r.Tag + " (" + r.Rule + ")"
	case KindLooksNewer:
		return "looks newer, but cannot be compared: ", LastPart(r.Image) + " " + r.Tag
	case KindRebuildsOnly:
		return "rebuilds only: ", LastPart(r.Image) + " " + r.Tag
	default:
		return "", r.Text
	}
}

// WithText sets the text of a reason from its fields.
func WithText(r Reason) Reason {
	lead, item := r.item()
	r.Text = lead + item
	return r
}

// SentenceOf returns reasons as text for people, with reasons of one kind in one list.
func SentenceOf(reasons []Reason) string {
	var out []string
	for n := 0; n < len(reasons); {
		var items []string
		kind := reasons[n].Kind
		lead, _ := reasons[n].item()
		for ; n < len(reasons) && reasons[n].Kind == kind && (lead != "" || items == nil); n++ {
			_, item := reasons[n].item()
			items = append(items, item)
		}
		if kind == KindNotAllowed || kind == KindLooksNewer || kind == KindRebuildsOnly {
			items = []string{few(items)}
		}
		out = append(out, lead+strings.Join(items, ", "))
	}
	return strings.Join(out, "; ")
}

// Sorted sorts reasons by text and removes duplicates.
func Sorted(reasons []Reason) []Reason {
	slices.SortFunc(reasons, func(x, y Reason) int { return strings.Compare(x.Text, y.Text) })
	return slices.CompactFunc(reasons, func(x, y Reason) bool { return x.Text == y.Text })
}

// OfAnyState returns the reasons reported in every state: running releases that must not run, offers that wait for
// approval, and a lost record.
func OfAnyState(reasons []Reason) []Reason {
	return slices.DeleteFunc(slices.Clone(reasons), func(r Reason) bool {
		return r.Kind != KindApproval && r.Kind != KindLost && !r.Kind.MustNotRun()
	})
}

// AddReason inserts a reason after the running releases that must not run, and before all others.
func AddReason(reasons []Reason, r Reason) []Reason {
	at := 0
	for at < len(reasons) && reasons[at].Kind.MustNotRun() {
		at++
	}
	return slices.Insert(slices.Clone(reasons), at, r)
}

// SetFailed sets the state to failed. The reason comes first, except for running releases that must not run.
func (s *Status) SetFailed(r Reason) {
	s.State = StateFailed
	s.Reasons = AddReason(s.Reasons, r)
	s.Failures = append([]Failure{r.AsFailure()}, s.Failures...)
	s.Reason = SentenceOf(s.Reasons)
}

// Failure is one reason of the state failed, with its object. Fields that a kind does not have are empty.
type Failure struct {
	PodManifest string `json:"podManifest" dbus:"podManifest"`
	Container   string `json:"container" dbus:"container"`
	Image       string `json:"image" dbus:"image"` // repository
	Kind        Kind   `json:"kind" dbus:"kind"`
	// From is the previous release, To the one that failed.
	From string `json:"from" dbus:"from"`
	To   string `json:"to" dbus:"to"`
	// RolledBackTo is the release that runs instead of To; empty if it was not rolled back.
	RolledBackTo string     `json:"rolledBackTo" dbus:"rolledBackTo"`
	At           *time.Time `json:"at" dbus:"at"` // null if unknown
	Cause        ErrorKind  `json:"cause" dbus:"cause"`
	Reason       string     `json:"reason" dbus:"reason"` // for people
}

// AsFailure converts a reason of the state failed to a failure.
func (r Reason) AsFailure() Failure {
	f := Failure{
		PodManifest: r.PodManifest, Container: r.Container, Image: r.Image, Kind: r.Kind, To: r.Tag, Cause: r.ErrorKind,
		Reason: r.Text,
	}
	if !r.Since.IsZero() {
		at := r.Since.UTC()
		f.At = &at
	}
	return f
}

// Down describes a followed container that does not run.
type Down struct {
	// Since is when it ended; if it never started, when that was first observed.
	Since time.Time `json:"since"`
	// Starting: kubelet has not started it yet, and may still pull or run init containers. After five minutes it counts
	// as down.
	Starting bool   `json:"starting"`
	ExitCode int32  `json:"exitCode"`
	Reason   string `json:"reason"`  // from CRI or kubelet: Error, OOMKilled, CrashLoopBackOff, ErrImagePull; or empty
	Message  string `json:"message"` // from CRI or kubelet
	// Absent: CRI does not list it.
	Absent bool `json:"absent,omitempty"`
}

// String describes the container in one sentence.
func (d Down) String() string {
	text := "is not running"
	switch {
	case d.Starting:
		text = "has not started yet"
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

// AsReason returns the reason for the node's state.
func (d *Down) AsReason(file, container, image string) Reason {
	return Reason{
		Kind: KindDown, PodManifest: file, Container: container, Image: image, Since: d.Since.UTC(),
		Text: fmt.Sprintf("%s: %s %s", file, container, d),
	}
}

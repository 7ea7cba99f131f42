// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
)

// Result is the result of an apply or a rollback of a pod manifest.
type Result string

// The results.
const (
	ResultApplied    Result = "applied" // CRI shows the offer running
	ResultNothing    Result = "nothing" // nothing to apply, or no rollback target
	ResultHeld       Result = "held"    // there is a hold
	ResultFailed     Result = "failed"  // the pod did not come up
	ResultRolledBack Result = "rolled back"
	ResultWouldApply Result = "would apply" // of a dry run: an apply would restart the pod
	ResultCanceled   Result = "canceled"    // the caller left before the restart, which ended its approval
	ResultContinues  Result = "continues"   // the caller left after the restart began; the restart continues
	ResultPickedUp   Result = "picked up"   // in the history: kubelet started it, and it passed its health check
)

// ChangeRollback is the change of a rollback.
const ChangeRollback = "rollback"

// Outcome is the result of an apply or a rollback of one pod manifest.
type Outcome struct {
	PodManifest string `json:"podManifest" dbus:"podManifest"`
	Change      string `json:"change" dbus:"change"`
	Result      Result `json:"result" dbus:"result"`
	Reason      string `json:"reason" dbus:"reason,long"`
	// Hold is the name of the hold, ErrorKind the kind of the error; empty if there is none.
	Hold      string    `json:"hold" dbus:"hold"`
	ErrorKind ErrorKind `json:"errorKind" dbus:"errorKind"`
	// Edits are the planned changes of the pod manifest.
	Edits []Edit `json:"edits,omitempty"`
	// Brings is what the catalog says of the change.
	Brings *format.Brought `json:"brings,omitempty"`
}

// SetError sets the result for an error: held if it only has to wait, else failed.
func (o *Outcome) SetError(err error) {
	o.Result, o.Reason, o.ErrorKind = ResultFailed, err.Error(), ErrorKindOf(err)
	if release.IsWaiting(err) {
		o.Result = ResultHeld
	}
	if h, is := errors.AsType[*release.HoldError](err); is {
		o.Hold = h.Hold
	}
}

// The fields of a pod manifest that the agent changes.
const (
	EditImage      = "image"
	EditPullPolicy = "imagePullPolicy"
)

// Edit is a change of one container or volume of a pod manifest.
type Edit struct {
	Container string `json:"container"`
	Field     string `json:"field"` // EditImage or EditPullPolicy
	From      string `json:"from"`  // for an image, its release; "" if absent
	To        string `json:"to"`
}

// The kinds of actors. A hold is by ByPerson or ByConfiguration.
const (
	ByPerson        = "person"
	ByConfiguration = "configuration"
	ByAuto          = "auto"    // apply.mode: auto
	ByAgent         = "agent"   // a rollback after a failure
	ByKubelet       = "kubelet" // a start without an approval
)

// Actor is who approved or did something.
type Actor struct {
	Kind string  `json:"kind" dbus:"by"`             // ByPerson ...
	Via  string  `json:"via,omitempty" dbus:"via"`   // of a person: ViaSocket or ViaBus; empty if unknown
	UID  *uint32 `json:"uid,omitempty" dbus:"uid"`   // of a person; nil if unknown
	User string  `json:"user,omitempty" dbus:"user"` // the name of UID; empty if unknown
}

// How a person's request reaches the daemon.
const (
	ViaSocket = "socket"
	ViaBus    = "bus"
)

// String returns the actor for people, as in "alice (uid 1000, bus)".
func (a Actor) String() string {
	switch {
	case a.Kind == ByAuto:
		return "mode auto"
	case a.UID == nil:
		return a.Kind
	case a.User == "":
		return fmt.Sprintf("uid %d (%s)", *a.UID, a.Via)
	default:
		return fmt.Sprintf("%s (uid %d, %s)", a.User, *a.UID, a.Via)
	}
}

type actorKey struct{}

// WithActor returns a context for a request of an actor.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf returns the actor of a request; an unknown person if there is none.
func ActorOf(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return Actor{Kind: ByPerson}
}

// HistoryEntry is an event of one container: it was applied, picked up by kubelet or rolled back, or one of these
// failed.
type HistoryEntry struct {
	At          time.Time `json:"at" dbus:"at"` // end of the event
	PodManifest string    `json:"podManifest" dbus:"podManifest"`
	// Container: empty if no release changed: the entry is about the whole pod.
	Container string `json:"container" dbus:"container"`
	// Change: of the pod manifest, as in an Outcome; empty if kubelet picked it up.
	Change string `json:"change" dbus:"change"`
	Image  string `json:"image" dbus:"image"` // repository
	// From: the previous release by its best name; empty if unknown.
	From   string        `json:"from" dbus:"from"`
	To     string        `json:"to" dbus:"to"`
	Digest digest.Digest `json:"digest" dbus:"digest"` // of To
	Result Result        `json:"result" dbus:"result"`
	// Cause is why it failed, or was rolled back automatically; empty if neither.
	Cause  ErrorKind `json:"cause" dbus:"cause"`
	Reason string    `json:"reason" dbus:"reason"` // for people
	By     Actor     `json:"by" dbus:",inline"`
	// Severity and Fixes are what the catalog said of the change when it was approved; empty: nothing.
	Severity format.Severity `json:"severity,omitempty" dbus:"severity"`
	Fixes    []string        `json:"fixes,omitempty" dbus:"fixes"`
}

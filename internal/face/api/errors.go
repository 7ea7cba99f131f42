// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// The kinds of errors, in ResultEvent.Kind and, behind BusName.Error., on the bus.
const (
	KindFailed       = "Failed"
	KindUnknownImage = "UnknownImage" // a name in the request fits nothing
	KindInvalidArgs  = "InvalidArgs"
	KindNothingToDo  = "NothingToDo"
	KindHeld         = "Held"
	KindCanceled     = "Canceled"   // the caller left before it began
	KindMoved        = "OfferMoved" // an offer is not what the caller expects
)

// kindOf is the kind of an error of the daemon.
func kindOf(err error) string {
	_, isMoved := errors.AsType[*plan.MovedError](err)
	switch {
	case isMoved:
		return KindMoved
	case errors.Is(err, agent.ErrCanceled):
		return KindCanceled
	case errors.Is(err, plan.ErrUnknownImage):
		return KindUnknownImage
	case errors.Is(err, agent.ErrHoldEnds), errors.Is(err, agent.ErrReason), errors.Is(err, plan.ErrWhich),
		errors.Is(err, plan.ErrNotSelected), errors.Is(err, agent.ErrNoLock),
		errors.Is(err, localregistry.ErrNoRegistry):
		return KindInvalidArgs
	case errors.Is(err, agent.ErrNothingToDo):
		return KindNothingToDo
	case errors.Is(err, release.ErrHeld):
		return KindHeld
	default:
		return KindFailed
	}
}

// Error is an error that the daemon has answered with. It is plan.ErrUnknownImage and
// release.ErrHeld (also of KindMoved) by its kind.
type Error struct {
	Kind  string // a newer daemon may have others
	Text  string // for people
	Moved []plan.Moved
}

func (e *Error) Error() string { return e.Text }

// Is compares the kinds.
func (e *Error) Is(target error) bool {
	switch target {
	case plan.ErrUnknownImage:
		return e.Kind == KindUnknownImage
	case release.ErrHeld:
		return e.Kind == KindHeld || e.Kind == KindMoved
	default:
		return false
	}
}

// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
)

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

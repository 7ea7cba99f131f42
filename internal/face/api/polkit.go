// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

const (
	// askTimeout bounds a question that programs of this node answer.
	askTimeout = 10 * time.Second
	// passwordTimeout bounds one that a person answers.
	passwordTimeout = 2 * time.Minute
	// maxAsked bounds the questions to polkit at a time.
	maxAsked = maxClients / 2
)

// authority decides who may act: root, and callers that polkit allows it. If polkit is
// missing or does not answer, only root.
//
// The bus says who the caller is; the caller's process is not examined. Each question
// has a connection of its own; when that ends, polkit closes the dialog that it has
// opened.
type authority struct {
	address        string
	asked          chan struct{} // one for each question that goes on
	soon, typingIn time.Duration // askTimeout, passwordTimeout
}

func newAuthority(address string) authority {
	return authority{address, make(chan struct{}, maxAsked), askTimeout, passwordTimeout}
}

// allows returns the caller's uid, and an error if the action is not allowed. It calls
// known as soon as the caller is root, or polkit has to be asked.
func (a authority) allows(ctx context.Context, c bus.Call, action string, known func()) (uid uint32, err error) {
	return a.decides(ctx, c, known, func() error { return a.polkit(ctx, c, action) })
}

// allowed returns the methods that the caller may call without a password, sorted.
func (a authority) allowed(ctx context.Context, c bus.Call, known func()) ([]string, error) {
	c.Interactive = false
	all := slices.Sorted(maps.Keys(actions))
	may := []string{}
	uid, err := a.decides(ctx, c, known, func() error {
		ctx, cancel := context.WithTimeout(ctx, a.soon)
		defer cancel()
		for _, method := range all {
			if a.polkit(ctx, c, actions[method].id) == nil {
				may = append(may, method)
			}
		}
		return nil
	})
	if err == nil && uid == 0 {
		may = all
	}
	return may, err
}

// decides returns the caller's uid. If it is not root, ask asks polkit.
func (a authority) decides(ctx context.Context, c bus.Call, known func(), ask func() error) (uid uint32, err error) {
	if err := a.ask(ctx, c, a.soon, bus.Driver("GetConnectionUnixUser", c.Sender), &uid); err != nil {
		return nobody, refuse(errDenied, "cannot identify the caller: %v", err)
	}
	if uid == 0 {
		known()
		return uid, nil
	}
	select {
	case a.asked <- struct{}{}:
		defer func() { <-a.asked }()
		known()
		return uid, ask()
	default:
		return uid, refuse(errTooMuch, "too many questions to polkit: %d are open", maxAsked)
	}
}

// nobody is the uid of an unknown caller.
const nobody = 65534

// subject is the caller, for polkit: (sa{sv}).
type subject struct {
	Kind    string
	Details map[string]dbus.Variant
}

// result is polkit's answer: (bba{ss}).
type result struct {
	Authorized, Challenge bool
	Details               map[string]string
}

// polkit asks polkit (its manual, "org.freedesktop.PolicyKit1.Authority").
func (a authority) polkit(ctx context.Context, c bus.Call, action string) error {
	const allowUserInteraction = 1
	flags, timeout := uint32(0), a.soon
	if c.Interactive {
		flags, timeout = allowUserInteraction, a.typingIn
	}
	who := subject{"system-bus-name", map[string]dbus.Variant{"name": dbus.MakeVariant(c.Sender)}}
	var answer result
	err := a.ask(ctx, c, timeout, bus.Question{
		Service: "org.freedesktop.PolicyKit1", Path: "/org/freedesktop/PolicyKit1/Authority",
		Method: "org.freedesktop.PolicyKit1.Authority.CheckAuthorization", Start: true,
		Args: []any{who, action, map[string]string{}, flags, ""},
	}, &answer)
	switch {
	case errors.Is(err, bus.ErrAbsent):
		return refuse(errDenied, "only root may do this: polkit, which could allow %s, is not running", action)
	case err != nil:
		return refuse(errDenied, "only root may do this: polkit, which could allow %s: %v", action, err)
	case answer.Authorized:
		return nil
	case answer.Challenge:
		return refuse(errNeedsInteraction, "polkit requires a password for %s", action)
	default:
		return refuse(errDenied, "polkit does not allow %s", action)
	}
}

// errOtherBus: on another bus the name may belong to another caller.
var errOtherBus = errors.New("the bus was restarted after the call")

// ask asks on the bus from which the call came.
func (a authority) ask(ctx context.Context, c bus.Call, timeout time.Duration, q bus.Question, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := bus.Open(ctx, a.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	switch id, err := conn.ID(ctx); {
	case err != nil:
		return err
	case id != c.Bus:
		return errOtherBus
	}
	return conn.Ask(ctx, q, into)
}

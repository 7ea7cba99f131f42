// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/json"
	"time"

	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// MaxOp is the largest op in bytes.
const MaxOp = 4 << 20

// Action is what an op asks for.
type Action string

// The actions.
const (
	ActionAdd      Action = "add"      // list releases; those that are listed stay as they are
	ActionPromote  Action = "promote"  // list releases with these sets and rollouts, also withdrawn ones
	ActionWithdraw Action = "withdraw" // mark releases as withdrawn
	ActionRefresh  Action = "refresh"  // set when the channel expires
)

// Op is a change of a channel that somebody asks for.
type Op struct {
	Tag     string    `json:"-"` // its tag in the catalog's repository
	Channel string    `json:"channel"`
	Do      Action    `json:"do"`
	Changes []Change  `json:"changes,omitempty"` // of all actions but refresh
	Expires time.Time `json:"expires,omitzero"`  // of refresh; zero: never
}

// Change is what an op asks for one release.
type Change struct {
	Image   string  `json:"image"`
	Release Release `json:"release"`
}

// Encode returns the op as JSON.
func (o Op) Encode() ([]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	out, err := json.Marshal(o)
	if err == nil && len(out) > MaxOp {
		err = newError(KindTooLarge, "the op has more than %d bytes: divide it", MaxOp)
	}
	return out, err
}

// DecodeOp decodes the op of a tag and checks all of it.
func DecodeOp(tag string, data []byte) (Op, error) {
	if len(data) > MaxOp {
		return Op{}, newError(KindTooLarge, "%s: the op has more than %d bytes", tag, MaxOp)
	}
	if _, err := (&ocimanifest.Bounds{Entries: MaxImages, Members: MaxImages * maxUnknown}).Write(data); err != nil {
		return Op{}, wrap(KindTooLarge, err, "%s", tag)
	}
	o := Op{}
	if err := json.Unmarshal(data, &o); err != nil {
		return Op{}, wrap(KindFormat, err, "%s", tag)
	}
	o.Tag = tag
	if err := o.check(); err != nil {
		return Op{}, wrap(KindFormat, err, "%s", tag)
	}
	return o, nil
}

// check checks all fields.
func (o Op) check() error {
	if err := CheckChannel(o.Channel); err != nil {
		return err
	}
	switch o.Do {
	case ActionAdd, ActionPromote, ActionWithdraw, ActionRefresh:
	default:
		return newError(KindFormat, "action %.20q: want add, promote, withdraw or refresh", o.Do)
	}
	if !IsOpTag(o.Tag) {
		return newError(KindFormat, "tag %.40q: not the tag of an op", o.Tag)
	}
	if !o.Expires.IsZero() && !o.Expires.Equal(outside.Time(o.Expires)) {
		return newError(KindFormat, "expires: not a time of the years 1 to 9998")
	}
	for _, c := range o.Changes {
		if err := checkImage(c.Image); err != nil {
			return err
		}
		if err := c.Release.check(); err != nil {
			return wrap(KindFormat, err, "%s", c.Image)
		}
		if isWithdrawal := c.Release.Withdrawn != nil; isWithdrawal != (o.Do == ActionWithdraw) {
			return newError(KindFormat, "%s:%s: want a reason where the action is withdraw, and only there", c.Image, c.Release.Tag)
		}
	}
	return nil
}
